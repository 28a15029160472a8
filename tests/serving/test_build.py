"""Opening a service: the workers it starts, and what is left where one of them fails."""

from collections.abc import Iterator

import pytest
import torch

from ridgerank.errors import ServingError
from ridgerank.reranker.options import RerankerOptions
from ridgerank.reranker.reranker import Reranker
from ridgerank.serving import build
from ridgerank.serving.build import open_service
from ridgerank.serving.serve_settings import ServeSettings
from tests.serving.conftest import Corpus, client_of


class FakeProcess:
    """Stands in for a process that runs the model; the second one fails to start."""

    started: list["FakeProcess"]

    def __init__(self, options: RerankerOptions, store: str, *, threads: int) -> None:
        self.options, self.threads = options, threads
        self.closed = False
        self.started.append(self)

    def wait(self) -> None:
        if len(self.started) == 2 and self is self.started[1]:
            raise ServingError("no memory")

    def close(self) -> None:
        self.closed = True


@pytest.fixture(autouse=True)
def _same_threads() -> Iterator[None]:
    """Put back the number of threads, which a service divides among its workers."""
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def test_threads_share_the_reranker_and_its_cores(reranker: Reranker, corpus: Corpus) -> None:
    torch.set_num_threads(2)
    settings = ServeSettings(workers=2, processes=False)
    service = open_service(corpus.store, RerankerOptions(), settings, backbone=reranker.backbone)
    try:
        assert service.settings.workers == 2
        assert torch.get_num_threads() == 1
        with client_of(service) as client:
            answer = client.post("/v1/search", json={"query": corpus.queries[0], "k": 5, "top_n": 5}).json()
        pages = reranker.search(corpus.queries[0], k=5).pages
        assert [result["page_id"] for result in answer["results"]] == [page.page_id for page in pages]
    finally:
        service.close()


def test_processes_divide_the_cache_and_end_where_one_does_not_start(
    reranker: Reranker, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    FakeProcess.started = []
    monkeypatch.setattr(build, "ModelProcess", FakeProcess)
    settings = ServeSettings(workers=2, processes=True)
    with pytest.raises(ServingError, match="no memory"):
        open_service(corpus.store, RerankerOptions(cache_bytes=100), settings, backbone=reranker.backbone)
    assert [process.options.cache_bytes for process in FakeProcess.started] == [50, 50]
    assert all(process.closed for process in FakeProcess.started)
