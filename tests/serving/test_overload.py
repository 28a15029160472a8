"""With `on_overload` a caller gets the order without the model where the model cannot answer in time."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from ridgerank.reranker.candidates import CandidateList
from ridgerank.reranker.reranker import Reranker
from ridgerank.serving.settings import Limits
from tests.serving.conftest import SECONDS, Corpus, MakeService, client_of, png
from tests.serving.test_load import Held, held, until

__all__ = ["held"]
QUERY = "profit of Norway rose"
SEARCH = {"query": QUERY, "k": 6, "top_n": 6, "on_overload": "retriever"}


@pytest.fixture
def no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that fails whenever it is asked."""
    rank_lists = Reranker.rank_lists

    def fail(reranker: Reranker, lists: Sequence[CandidateList], **more: Any) -> Any:  # noqa: ANN401
        if any(not each.unread for each in lists):
            raise RuntimeError("out of memory")
        return rank_lists(reranker, lists, **more)

    monkeypatch.setattr(Reranker, "rank_lists", fail)


def retrievers_order(answer: dict[str, Any], reason: str) -> None:
    """The answer is in the retriever's order, and says why."""
    assert (answer["reranked"], answer["weight"]) == (False, 0)
    assert reason in answer["reasons"][0]
    scores = [result["retriever_score"] for result in answer["results"]]
    assert scores == sorted(scores, reverse=True)
    assert all(result["readout_score"] is None for result in answer["results"])
    levels = [result["relevance_score"] for result in answer["results"]]
    assert levels == sorted(levels, reverse=True)


def test_a_store_with_bm25_and_sent_scores_do_not_need_the_model(
    make_service: MakeService, text_reranker: Reranker, no_model: None
) -> None:
    page_ids = text_reranker.store.page_ids()[:3]
    scores: dict[str, Any] = {"query": QUERY, "retriever_scores": [0.5, 2.0, 1.0]}
    wish = {"on_overload": "retriever"}
    with client_of(make_service(text_reranker)) as client:
        retrievers_order(client.post("/v1/search", json=SEARCH).json(), "the model failed")
        unscored = {"query": QUERY, "documents": page_ids, **wish}
        retrievers_order(client.post("/v1/rerank", json=unscored).json(), "the model failed")
        for documents in (page_ids, [page_ids[0], "a text", {"image": png(), "text": "another"}]):
            answer = client.post("/v2/rerank", json={**scores, "documents": documents, **wish})
            retrievers_order(answer.json(), "the model failed")
            assert [each["index"] for each in answer.json()["results"]] == [1, 2, 0]
            assert client.post("/v2/rerank", json={**scores, "documents": documents}).status_code == 500
        assert client.post("/v1/search", json={**SEARCH, "min_score": 0.5}).status_code in (422, 503)
        assert client.post("/v1/search", json={"query": QUERY}).status_code == 500
        assert 'outcome="degraded",store="default"} 4.0' in client.get("/metrics").text


def test_a_full_queue_and_a_deadline_leave_the_retrievers_order(
    make_service: MakeService, text_reranker: Reranker, held: Held
) -> None:
    limits = Limits(admitted=1, deadline_seconds=SECONDS)
    service = make_service(text_reranker, limits=limits, on_overload="retriever")
    with client_of(service) as client, ThreadPoolExecutor(1) as callers:
        late = client.post("/v1/search", json={**SEARCH, "deadline_ms": 300})
        retrievers_order(late.json(), "no answer within the 300 ms")
        held.leave.release()
        until(lambda: service.engine.admitted == 0)
        first = callers.submit(client.post, "/v1/search", json=SEARCH)
        until(lambda: service.engine.admitted == 1)
        retrievers_order(client.post("/v1/search", json=SEARCH).json(), "requests are being worked on")
        refused = client.post("/v1/search", json={**SEARCH, "on_overload": "error"})
        assert (refused.status_code, refused.json()["code"]) == (429, "overloaded")
        held.leave.release(10)
        assert first.result(SECONDS).json()["reranked"]


def test_a_retriever_that_waits_for_the_same_device_leaves_no_order(
    make_service: MakeService, corpus: Corpus, reranker: Reranker, no_model: None
) -> None:
    page_ids = reranker.store.page_ids()[:2]
    body = {"query": corpus.queries[0], "documents": page_ids, "on_overload": "retriever"}
    with client_of(make_service()) as client:
        assert client.post("/v1/rerank", json=body).status_code == 503
        sent = client.post("/v1/rerank", json={**body, "retriever_scores": [1, 2]})
        retrievers_order(sent.json(), "the model failed")
        assert client.post("/v1/rerank", json={**body, "on_overload": None}).status_code == 500
