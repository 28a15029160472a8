"""One caller's trouble is that caller's: others get their answers, and nobody waits for work nobody wants."""

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from ridgerank.byte_lru import CacheCounts
from ridgerank.errors import ScoreError
from ridgerank.records import Ranking
from ridgerank.reranker import batching
from ridgerank.reranker.batching import PAGES_PER_PASS, pages_per_pass
from ridgerank.reranker.candidates import CandidateList
from ridgerank.reranker.options import RerankerOptions
from ridgerank.reranker.reranker import Reranker
from ridgerank.serving import model_process
from ridgerank.serving.engine import Engine
from ridgerank.serving.jobs import CallerLeftError, Job, RankingResult, SearchWork
from ridgerank.serving.model_process import ModelProcess
from ridgerank.serving.serve_settings import Limits
from ridgerank.store.page_filter import PageFilter
from ridgerank.worker_process import WorkerDied
from tests.serving.conftest import SECONDS, Corpus, MakeService, client_of
from tests.serving.test_load import Held, held, until

__all__ = ["held"]


class FakeRanker:
    """Passes to the reranker what it does not fail itself; counts what it was asked to rank."""

    def __init__(self, reranker: Reranker, fail: Callable[[Sequence[CandidateList]], None]) -> None:
        self._reranker = reranker
        self._fail = fail
        self.batches: list[list[str]] = []

    def retrieve(
        self, queries: Sequence[str], *, k: int, within: PageFilter | None = None
    ) -> list[CandidateList]:
        return self._reranker.retrieve(queries, k=k)

    def rank_lists(self, lists: Sequence[CandidateList], *, before_pass: Callable[[], None]) -> list[Ranking]:
        before_pass()
        self.batches.append([candidates.query for candidates in lists])
        self._fail(lists)
        return self._reranker.rank_lists(lists)

    def cache_counts(self) -> CacheCounts:
        return self._reranker.cache_counts()


def test_extreme_scores_fail_their_own_request_only(
    make_service: MakeService, corpus: Corpus, held: Held
) -> None:
    service = make_service(limits=Limits(admitted=50, deadline_seconds=SECONDS))
    page_ids = service.reranker.store.page_ids()[:9]
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


def failing_batch(
    reranker: Reranker, corpus: Corpus, error: Exception, culprit: str
) -> tuple[FakeRanker, list[Job]]:
    """Four searches that wait together; a batch with the culprit in it fails."""
    begun, go = threading.Event(), threading.Event()

    def fail(lists: Sequence[CandidateList]) -> None:
        begun.set()
        assert go.wait(SECONDS)
        if any(candidates.query == culprit for candidates in lists):
            raise error

    ranker = FakeRanker(reranker, fail)
    engine = Engine([ranker], Limits())
    [first] = engine.submit([SearchWork(corpus.queries[0], 3)])
    assert begun.wait(SECONDS)
    jobs = engine.submit([SearchWork(query, 3) for query in corpus.queries[1:5]])
    go.set()
    for job in (first, *jobs):
        job.result.exception(SECONDS)
    engine.close()
    return ranker, jobs


@pytest.mark.parametrize("error", [ScoreError("too wide"), ValueError("unforeseen"), WorkerDied("ended")])
def test_a_shared_pass_that_fails_is_run_again_one_by_one(
    reranker: Reranker, corpus: Corpus, error: Exception
) -> None:
    culprit = corpus.queries[2]
    _, jobs = failing_batch(reranker, corpus, error, culprit)
    raised = [job.result.exception() for job in jobs]
    assert [type(each) for each in raised] == [type(None), type(error), type(None), type(None)]


def test_work_whose_caller_left_is_not_done_again_after_its_process_ended(
    reranker: Reranker, corpus: Corpus
) -> None:
    jobs: list[Job] = []

    def die(lists: Sequence[CandidateList]) -> None:
        engine.drop(jobs)
        raise WorkerDied("ended")

    ranker = FakeRanker(reranker, die)
    engine = Engine([ranker], Limits())
    with engine._changed:  # both are taken at once
        jobs += engine.submit([SearchWork(corpus.queries[0], 3)])
        jobs += engine.submit([SearchWork(corpus.queries[1], 3)])
    for job in jobs:
        assert isinstance(job.result.exception(SECONDS), CallerLeftError)
    assert len(ranker.batches) == 1
    engine.close()


def test_a_long_query_runs_over_few_pages_at_once(
    reranker: Reranker, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert pages_per_pass(256, 1280) == PAGES_PER_PASS
    assert pages_per_pass(20, 4000) == PAGES_PER_PASS
    for tokens in (300, 2048, 6000, 10**6):
        entries = pages_per_pass(tokens, 1280) * tokens * (tokens + 1280)
        assert entries <= batching.PASS_ENTRIES or pages_per_pass(tokens, 1280) == 1
    monkeypatch.setattr(batching, "PASS_ENTRIES", 1)
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


@pytest.fixture
def process(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelProcess]:
    monkeypatch.setattr(model_process, "STALL_SECONDS", 3.0)
    monkeypatch.setattr(model_process, "WATCH_SECONDS", 0.1)
    started = ModelProcess(RerankerOptions(cache_bytes=1 << 20), corpus.store, threads=1)
    started.wait()
    yield started
    started.close()


def test_a_stopped_process_is_replaced_whether_it_works_or_not(
    process: ModelProcess, corpus: Corpus, reranker: Reranker
) -> None:
    stopped = process.pid
    assert stopped is not None
    os.kill(stopped, signal.SIGSTOP)
    until(lambda: not process.ready)
    until(lambda: process.ready)
    assert process.pid not in (stopped, None)
    engine = Engine([process], Limits())
    os.kill(process.pid or 0, signal.SIGSTOP)
    [job] = engine.submit([SearchWork(corpus.queries[0], 5)])
    result = job.result.result(SECONDS)
    assert isinstance(result, RankingResult)
    assert result.ranking.pages == reranker.search(corpus.queries[0], k=5).pages
    engine.close()


def test_work_nobody_waits_for_is_stopped_in_its_process(process: ModelProcess, corpus: Corpus) -> None:
    [candidates] = process.retrieve(corpus.queries[:1], k=3)
    pid, asked = process.pid, threading.Event()

    def leave() -> None:
        asked.set()
        raise CallerLeftError

    with pytest.raises(CallerLeftError):
        process.rank_lists([candidates] * 500, before_pass=leave)
    assert asked.is_set()
    assert process.rank_lists([candidates])[0].pages
    assert process.pid == pid, "it was to stop, not to end"
