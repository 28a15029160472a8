"""Many callers at once: equal answers, a bounded queue, deadlines, orders without the model, an end."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import httpx
import pytest

from ridgerank.reranker.candidates import CandidateList
from ridgerank.reranker.reranker import Reranker
from ridgerank.serving.engine import Job, RankingResult, Work
from ridgerank.serving.http_errors import ApiError
from ridgerank.serving.service import order_unread
from ridgerank.serving.settings import Limits
from tests.serving.conftest import SECONDS, Corpus, MakeService, client_of, png, serve


class Held:
    """A model that waits for permission before each pass, and counts the lists of each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.entered = threading.Semaphore(0)
        self.leave = threading.Semaphore(0)
        self.batches: list[int] = []
        rank_lists = Reranker.rank_lists

        def held(reranker: Reranker, prepared: Sequence[CandidateList], **more: Any) -> Any:  # noqa: ANN401
            if all(each.unread for each in prepared):
                return rank_lists(reranker, prepared, **more)
            self.batches.append(len(prepared))
            self.entered.release()
            assert self.leave.acquire(timeout=SECONDS)
            return rank_lists(reranker, prepared, **more)

        monkeypatch.setattr(Reranker, "rank_lists", held)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    model = Held(monkeypatch)
    yield model
    model.leave.release(1000)


def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition; the limit is generous, because the machine may be busy."""
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.005)


def ranking_of(job: Job, *, seconds: float = SECONDS) -> RankingResult:
    result = job.result.result(seconds)
    assert isinstance(result, RankingResult)
    return result


def search(reranker: Reranker, query: str, k: int) -> Work:
    return Work(reranker, query, k, lambda _: reranker.retrieve([query], k=k)[0])


def plain(answer: dict[str, Any]) -> dict[str, Any]:
    return {name: answer[name] for name in ("results", "weight", "weight_source", "reasons", "query")}


def test_concurrent_requests_get_what_lone_ones_get(make_service: MakeService, corpus: Corpus) -> None:
    service = make_service(limits=Limits(admitted=100, deadline_seconds=SECONDS))
    service.engine.batch_jobs = 8
    with (
        serve(service) as address,
        httpx.Client(base_url=address, timeout=SECONDS) as client,
    ):
        bodies = [{"query": query, "k": k, "top_n": k} for query in corpus.queries[:8] for k in (3, 12, 20)]
        alone = [client.post("/v1/search", json=body).json() for body in bodies]
        with ThreadPoolExecutor(8) as callers:
            crowd = list(callers.map(lambda body: client.post("/v1/search", json=body).json(), bodies))
        together = max(
            float(line.rpartition(" ")[2])
            for line in client.get("/metrics").text.splitlines()
            if line.startswith("ridgerank_requests_together_sum")
        )
    for lone, concurrent in zip(alone, crowd, strict=True):
        assert plain(lone) == plain(concurrent)  # to the last digit
    assert together > 2 * len(bodies), "no two requests shared a batch, so this shows nothing"


def test_what_waits_is_served_together(
    make_service: MakeService, corpus: Corpus, held: Held, reranker: Reranker
) -> None:
    engine = make_service(limits=Limits(admitted=9)).engine
    engine.batch_jobs = 8
    [first] = engine.submit([search(reranker, corpus.queries[0], 12)])
    assert held.entered.acquire(timeout=SECONDS)
    others = engine.submit([search(reranker, query, 12) for query in corpus.queries[1:9]])
    held.leave.release(2)
    results = [ranking_of(job) for job in (first, *others)]
    assert held.batches == [1, 8]
    assert [result.batch_jobs for result in results] == [1] + [8] * 8
    assert all(len(result.ranking.pages) == 12 for result in results)


def test_an_order_that_the_model_would_be_late_for_is_not_asked_of_it(
    make_service: MakeService, corpus: Corpus, held: Held, reranker: Reranker
) -> None:
    engine = make_service().engine
    work = search(reranker, corpus.queries[0], 12)
    [found] = reranker.retrieve([work.query], k=12)
    ordered = replace(work, order=order_unread(reranker, found))
    held.leave.release()
    [first] = engine.submit([work])
    ranking_of(first)
    until(lambda: engine.admitted == 0)
    free = engine.submit([ordered], seconds=0.0)  # a free model may turn out faster than it was
    with pytest.raises(ApiError, match="the model is busy for"):
        engine.submit([ordered], seconds=0.0)
    admitted = [*free, *engine.submit([ordered], seconds=SECONDS), *engine.submit([work], seconds=0.0)]
    held.leave.release(3)
    assert all(len(ranking_of(job).ranking.pages) == 12 for job in admitted)


def test_beyond_the_bound_callers_are_told_to_come_back_and_then_served(
    make_service: MakeService, corpus: Corpus, held: Held
) -> None:
    service = make_service(limits=Limits(admitted=3, deadline_seconds=SECONDS))
    body = {"query": corpus.queries[0], "k": 5}
    with (
        serve(service) as address,
        httpx.Client(base_url=address, timeout=SECONDS) as client,
        ThreadPoolExecutor(3) as callers,
    ):
        admitted = [callers.submit(client.post, "/v1/search", json=body) for _ in range(3)]
        until(lambda: service.engine.admitted == 3)
        for _ in range(5):
            refused = client.post("/v1/search", json=body)
            assert refused.status_code == 429
            assert int(refused.headers["retry-after"]) >= 1
            assert refused.json()["code"] == "overloaded"
        assert client.get("/healthz").status_code == 200
        held.leave.release(100)
        assert [answer.result(SECONDS).status_code for answer in admitted] == [200] * 3
        until(lambda: service.engine.admitted == 0)
        assert client.post("/v1/search", json=body).status_code == 200
        counted = client.get("/metrics").text
    assert 'ridgerank_answers_total{outcome="refused",store="default"} 5.0' in counted


@pytest.mark.parametrize(("deadline_ms", "status"), [(50, 408), (None, 503)])
def test_a_deadline_is_kept(
    make_service: MakeService, corpus: Corpus, held: Held, deadline_ms: int | None, status: int
) -> None:
    service = make_service(limits=Limits(deadline_seconds=0.2))
    with serve(service) as address, httpx.Client(base_url=address, timeout=SECONDS) as client:
        late = client.post(
            "/v1/search", json={"query": corpus.queries[0], "k": 5, "deadline_ms": deadline_ms}
        )
        assert late.status_code == status
        assert late.json()["code"] == "deadline_passed"
        held.leave.release(10)
        until(lambda: service.engine.admitted == 0)


def test_work_stops_when_the_caller_hangs_up(make_service: MakeService, corpus: Corpus, held: Held) -> None:
    service = make_service(limits=Limits(admitted=4, deadline_seconds=SECONDS))
    body = {"query": corpus.queries[0], "k": 5}
    with serve(service) as address:

        async def leave() -> None:
            async with httpx.AsyncClient(base_url=address) as client:
                tasks = [asyncio.ensure_future(client.post("/v1/search", json=body))]
                assert await asyncio.to_thread(held.entered.acquire, timeout=SECONDS)
                tasks += [asyncio.ensure_future(client.post("/v1/search", json=body)) for _ in range(3)]
                while service.engine.admitted < 4:
                    await asyncio.sleep(0.005)
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

        asyncio.run(leave())
        # Those that were waiting make room at once, while the model is still busy with the first.
        until(lambda: service.engine.admitted == 1)
        held.leave.release(10)
        until(lambda: service.engine.admitted == 0)
        assert sum(held.batches) == 1
        counted = httpx.get(f"{address}/metrics").text
    assert "ridgerank_left_total 4.0" in counted


def test_closing_finishes_what_was_admitted_and_takes_nothing_new(
    make_service: MakeService, reranker: Reranker, corpus: Corpus, held: Held
) -> None:
    engine = make_service().engine
    jobs = engine.submit([search(reranker, query, 5) for query in corpus.queries[:3]])
    assert held.entered.acquire(timeout=SECONDS)
    end = threading.Thread(target=engine.close)
    end.start()
    until(lambda: engine.closing)
    with pytest.raises(ApiError, match="shutting down"):
        engine.submit([search(reranker, corpus.queries[0], 5)])
    held.leave.release(10)
    end.join(SECONDS)
    assert all(ranking_of(job, seconds=0).ranking.pages for job in jobs)


def test_extreme_scores_fail_their_own_request_only(
    make_service: MakeService, corpus: Corpus, reranker: Reranker, held: Held
) -> None:
    service = make_service(limits=Limits(admitted=50, deadline_seconds=SECONDS))
    service.engine.batch_jobs = 8
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


QUERY = "profit of Norway rose"
SEARCH = {"query": QUERY, "k": 6, "top_n": 6, "on_overload": "retriever"}


@pytest.fixture
def no_model(monkeypatch: pytest.MonkeyPatch) -> None:
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
