"""Workers that are processes: the answers of the model here, whatever becomes of a process."""

import os
import signal
from collections.abc import Iterator

import pytest
import torch

from ridgerank.backbones.base import Backbone
from ridgerank.errors import QueryError, RidgeRankError, ServingError
from ridgerank.reranker.options import RerankerOptions
from ridgerank.reranker.reranker import Reranker
from ridgerank.serving.engine import Engine
from ridgerank.serving.jobs import RankingResult, SearchWork
from ridgerank.serving.model_process import ModelProcess
from ridgerank.serving.serve_settings import Limits, default_processes
from ridgerank.worker_process import WorkerDied
from tests.serving.conftest import SECONDS, Corpus


@pytest.fixture(scope="module")
def process(corpus: Corpus) -> Iterator[ModelProcess]:
    started = ModelProcess(
        RerankerOptions(cache_bytes=64 << 20), corpus.store, threads=torch.get_num_threads()
    )
    yield started
    started.close()


def test_it_ranks_as_the_model_here_to_the_last_digit(
    process: ModelProcess, reranker: Reranker, corpus: Corpus
) -> None:
    [candidates] = process.retrieve(corpus.queries[:1], k=5)
    [candidates_here] = reranker.retrieve(corpus.queries[:1], k=5)
    assert candidates.page_ids == candidates_here.page_ids
    [ranked], [expected] = process.rank_lists([candidates]), reranker.rank_lists([candidates_here])
    assert ranked.pages == expected.pages
    assert process.cache_counts().pages == 5


def test_a_killed_process_is_replaced_and_the_request_answered(
    process: ModelProcess, reranker: Reranker, corpus: Corpus
) -> None:
    engine = Engine([process], Limits())
    process.wait()
    first = process.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    [job] = engine.submit([SearchWork(corpus.queries[0], 5)])
    result = job.result.result(timeout=SECONDS)
    assert isinstance(result, RankingResult)
    assert result.ranking.pages == reranker.search(corpus.queries[0], k=5).pages
    assert process.pid != first
    engine.close()


def test_what_the_reranker_refuses_is_refused_in_its_words(process: ModelProcess) -> None:
    with pytest.raises(QueryError, match="empty"):
        process.retrieve([" "], k=5)


def test_an_error_nobody_foresaw_is_told_and_the_process_goes_on(
    process: ModelProcess, corpus: Corpus
) -> None:
    with pytest.raises(RuntimeError, match="TypeError"):
        process.retrieve(corpus.queries[:1], k="many")  # type: ignore[arg-type]
    assert process.retrieve(corpus.queries[:1], k=5)


def test_a_store_that_cannot_be_opened_is_told_as_it_would_be_here(tmp_path: object) -> None:
    broken = ModelProcess(RerankerOptions(), f"{tmp_path}/nothing", threads=1)
    with pytest.raises(RidgeRankError, match="nothing"):
        broken.wait()
    broken.close()


class Fatal(RerankerOptions):
    """A store whose opening ends the process."""

    def open(self, store: str, *, backbone: Backbone | None = None) -> Reranker:
        os._exit(3)


def test_a_process_that_ends_while_it_opens_the_store_says_what_to_try() -> None:
    dying = ModelProcess(Fatal(), "store", threads=1)
    with pytest.raises(ServingError, match=r"ended while it opened the store \(exit code 3.*--threads"):
        dying.wait()
    dying.close()


def test_a_process_that_ends_over_a_request_is_the_servers_fault_not_the_callers() -> None:
    dying = ModelProcess(Fatal(), "store", threads=1)
    with pytest.raises(WorkerDied) as error:
        dying.retrieve(["anything"], k=5)
    assert not isinstance(error.value, RidgeRankError), "which would be answered as a bad request"
    dying.close()


def test_processes_are_for_small_models_on_a_cpu() -> None:
    assert default_processes("cpu", 2, model_bytes=1 << 20)
    assert not default_processes("cpu", 1, model_bytes=1 << 20)
    assert not default_processes("cuda", 2, model_bytes=1 << 20)
    assert not default_processes("cpu", 2, model_bytes=1 << 50)
