"""One caller's trouble is that caller's: others get their answers, and nobody waits for work nobody wants."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from ridgerank.reranker import candidates as ranked_lists
from ridgerank.reranker.candidates import PAGES_PER_PASS, pages_per_pass
from ridgerank.reranker.reranker import Reranker
from ridgerank.serving.settings import Limits
from tests.serving.conftest import SECONDS, Corpus, MakeService, client_of
from tests.serving.test_load import Held, held, until

__all__ = ["held"]


def test_extreme_scores_fail_their_own_request_only(
    make_service: MakeService, corpus: Corpus, reranker: Reranker, held: Held
) -> None:
    service = make_service(limits=Limits(admitted=50, deadline_seconds=SECONDS))
    page_ids = reranker.store.page_ids()[:9]
    good = {"query": corpus.queries[0], "documents": page_ids, "retriever_scores": list(range(9))}
    bad = {**good, "retriever_scores": [1e308, -1e308, *[0.0] * 7]}
    with client_of(service) as client, ThreadPoolExecutor(8) as callers:
        first = callers.submit(client.post, "/v1/rerank", json=good)
        assert held.entered.acquire(timeout=SECONDS)
        others = [callers.submit(client.post, "/v1/rerank", json=body) for body in (good, bad, good, bad)]
        until(lambda: service.engine.admitted == 5)
        held.leave.release(100)
        statuses = [each.result(SECONDS).status_code for each in (first, *others)]
    assert statuses == [200, 200, 422, 200, 422]
    assert max(held.batches) == 4, "they did not share a batch, so this shows nothing"


def test_a_long_query_runs_over_few_pages_at_once(
    reranker: Reranker, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert pages_per_pass(256, 1280) == PAGES_PER_PASS
    assert pages_per_pass(20, 4000) == PAGES_PER_PASS
    for tokens in (300, 2048, 6000, 10**6):
        entries = pages_per_pass(tokens, 1280) * tokens * (tokens + 1280)
        assert entries <= ranked_lists.PASS_ENTRIES or pages_per_pass(tokens, 1280) == 1
    monkeypatch.setattr(ranked_lists, "PASS_ENTRIES", 1)
    passes = []
    reranker.rank_lists(reranker.retrieve(corpus.queries[:1], k=4), before_pass=lambda: passes.append(1))
    assert len(passes) == 4


@pytest.mark.parametrize("body", [{"k": 15}, {"k": 3, "query": "雪" * 1500}])
def test_too_much_work_is_refused_before_it_begins(
    make_service: MakeService, corpus: Corpus, body: dict[str, object], held: Held
) -> None:
    limits = Limits(query_tokens=500, pair_tokens=100, deadline_seconds=SECONDS)
    with client_of(make_service(limits=limits)) as client:
        answer = client.post("/v1/search", json={"query": corpus.queries[0], **body})
    assert answer.status_code == 422
    assert answer.json()["code"] == "too_much_work"
    assert held.batches == []
