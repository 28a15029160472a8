"""The pipeline over vidore-benchmark's `BasePipeline` where that is installed, else over its signature."""

import importlib
import inspect
import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from PIL.Image import Image

from ridgerank.errors import StoreError
from ridgerank.ranking.reranker import Reranker
from tests.adapters.conftest import QUERY, scan

BASE = "vidore_benchmark.pipeline_evaluation.base_pipeline"


class NotRead(list[Image]):
    """Images that may not be looked at."""

    def __getitem__(self, index: object) -> Any:  # noqa: ANN401
        raise AssertionError("an image was read though its page is known by name")


class Standing(ABC):
    """The two methods of `BasePipeline`, as its repository declares them."""

    def index(
        self,
        corpus_ids: list[str],
        corpus_images: list[Any],
        corpus_texts: list[str],
        dataset_name: str | None = None,
    ) -> None:
        """Every pipeline may leave this out."""
        self.corpus_ids = corpus_ids

    @abstractmethod
    def search(self, query_ids: list[str], queries: list[str]) -> dict[str, dict[str, float]]: ...


@pytest.fixture
def adapter(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    try:
        importlib.import_module(BASE)
    except ImportError:
        parents = BASE.split(".")
        for depth in range(1, len(parents) + 1):
            monkeypatch.setitem(sys.modules, ".".join(parents[:depth]), ModuleType(".".join(parents[:depth])))
        monkeypatch.setattr(sys.modules[BASE], "BasePipeline", Standing, raising=False)
    monkeypatch.delitem(sys.modules, "ridgerank.adapters.vidore", raising=False)
    yield importlib.import_module("ridgerank.adapters.vidore")
    sys.modules.pop("ridgerank.adapters.vidore", None)


def test_the_methods_are_those_of_the_real_base_pipeline(adapter: Any) -> None:  # noqa: ANN401
    base = adapter.BasePipeline
    for method in ("index", "search"):
        signature, base_signature = (
            inspect.signature(getattr(pipeline, method)) for pipeline in (adapter.PagePipeline, base)
        )
        assert list(signature.parameters) == list(base_signature.parameters)
    if base is Standing:
        pytest.skip("BasePipeline is in no release of vidore-benchmark: compared with its declared signature")


def test_a_corpus_is_searched_as_the_reranker_searches(adapter: Any, reranker: Reranker) -> None:  # noqa: ANN401
    names = {f"doc{index}": page_id for index, page_id in enumerate(reranker.store.page_ids())}
    pipeline = adapter.PagePipeline(reranker, names=names, k=5)
    pipeline.index(list(names), _images(names), [""] * len(names), dataset_name="reports")
    scores = pipeline.search(query_ids=["q1", "q2"], queries=[QUERY, "number of staff"])
    for query_id, query in (("q1", QUERY), ("q2", "number of staff")):
        pages = reranker.search(query, k=5, top_k=5).pages
        assert {names[key]: score for key, score in scores[query_id].items()} == {
            page.page_id: page.fused_score for page in pages
        }


def test_its_command_line_needs_only_a_store_and_a_pattern(
    adapter: Any,  # noqa: ANN401
    reranker: Reranker,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    arguments = json.loads('{"reranker": "pages", "names": "report.pdf#{}", "k": 3}')
    monkeypatch.setattr(adapter.Reranker, "open", {"pages": reranker}.get)
    pipeline = adapter.PagePipeline(**arguments)
    pipeline.index(["1", "2", "3"], NotRead(), [""] * 3)
    names = [f"report.pdf#{number}" for number in range(1, 4)]
    expected = {page.reference: page.fused_score for page in reranker.rank(QUERY, names).pages}
    scores = pipeline.search(["q"], [QUERY])["q"]
    assert {f"report.pdf#{corpus_id}": score for corpus_id, score in scores.items()} == expected
    with pytest.raises(StoreError, match=r"names is 'page\.png', wanted a pattern with {}"):
        adapter.PagePipeline(reranker, names="page.png").index(["1"], NotRead(), [""])


def test_pages_of_other_corpora_do_not_take_candidates_places(adapter: Any, reranker: Reranker) -> None:  # noqa: ANN401
    corpus = [f"report.pdf#{number}" for number in range(1, 5)]
    pipeline = adapter.PagePipeline(reranker, k=4)
    pipeline.index(corpus, _images(corpus), [""] * 4)
    everything = reranker.retriever.search(QUERY, len(reranker.store))
    candidates = [hit for hit in everything if reranker.store.reference(hit.page_id) in corpus]
    expected = {page.reference: page.fused_score for page in reranker.rank(QUERY, candidates).pages}
    assert pipeline.search(["q"], [QUERY]) == {"q": expected}


def test_a_corpus_that_is_not_stored_is_named(adapter: Any, reranker: Reranker) -> None:  # noqa: ANN401
    pipeline = adapter.PagePipeline(reranker)
    with pytest.raises(StoreError, match="call `index` first"):
        pipeline.search(["q"], [QUERY])
    with pytest.raises(
        StoreError, match=r"1 of 2 pages of reports are not in the page store .*: doc9; index"
    ):
        pipeline.index(["report.pdf#1", "doc9"], _images(range(2)), ["", ""], "reports")


def _images(items: Any) -> list[Image]:  # noqa: ANN401
    return [scan(f"page {item}") for item in items]
