from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL.Image import Image

from ridgerank.errors import RetrieverError
from ridgerank.ragged import Floats
from ridgerank.records import Candidate
from ridgerank.retrievers.base import Retriever, top_candidates
from ridgerank.retrievers.bm25 import BM25
from ridgerank.retrievers.encoders.base import MultiVectorEncoder
from ridgerank.retrievers.hybrid import HybridRetriever
from ridgerank.retrievers.load import load_retriever
from ridgerank.store.page_filter import PageSelection
from ridgerank.store.page_store import PageStore
from ridgerank.store.store_writer import StoreWriter
from tests.retrievers.test_bm25 import TEXTS, store_of
from tests.store.pages import LINEAGE


class Table(Retriever):
    """Scores by page, whatever the query."""

    def __init__(self, name: str, scores: dict[str, float]) -> None:
        self.name = name
        self._scores = scores

    def search_many(self, queries: Sequence[str], k: int) -> list[list[Candidate]]:
        return [top_candidates(list(self._scores), np.array(list(self._scores.values())), k) for _ in queries]

    def score(self, query: str, page_ids: Sequence[str]) -> Floats:
        return np.array([self._scores[page_id] for page_id in page_ids])


LOOK = Table("look", {"a": 3.0, "b": 2.0, "c": 1.0, "d": 0.0})
WORDS = Table("words", {"a": 0.0, "b": 200.0, "c": 100.0, "d": 300.0})


def test_a_page_is_scored_by_all_members_on_one_scale() -> None:
    together = HybridRetriever([LOOK, WORDS])
    pages = ["a", "b", "c", "d"]
    standardized = [
        (scores - scores.mean()) / scores.std() for scores in (LOOK.score("", pages), WORDS.score("", pages))
    ]
    np.testing.assert_allclose(together.score("q", pages), np.mean(standardized, axis=0))
    assert together.name == "look+words"


def test_candidates_of_any_member_are_candidates() -> None:
    [candidates] = HybridRetriever([LOOK, WORDS]).search_many(["q"], 1)
    assert [candidate.page_id for candidate in candidates] == ["a"]  # a and d are compared, and tie
    best = HybridRetriever([LOOK, WORDS]).search("q", 2)
    assert best[0].page_id == "b"
    assert best[0].score > best[1].score


def test_a_filter_holds_for_every_member() -> None:
    [candidates] = HybridRetriever([LOOK, WORDS]).search_within(["q"], 2, PageSelection(frozenset("bc"), ""))
    assert {candidate.page_id for candidate in candidates} == {"b", "c"}


def test_no_page_has_no_score() -> None:
    assert HybridRetriever([LOOK, WORDS]).score("q", []).shape == (0,)


def test_names_joined_by_plus_are_loaded_together(tmp_path: Path) -> None:
    with store_of(str(tmp_path / "store"), TEXTS) as store:
        with pytest.raises(RetrieverError, match="wanted different retrievers joined by"):
            load_retriever("bm25+bm25", store)
        with pytest.raises(RetrieverError, match="wanted different retrievers joined by"):
            load_retriever("bm25+", store)
        with pytest.raises(RetrieverError, match="holds vectors of no retriever"):
            load_retriever("stored+bm25", store)
        assert isinstance(load_retriever("bm25", store), BM25)


def test_late_interaction_and_words_of_one_store_are_searched_together(
    tmp_path: Path, encoder: MultiVectorEncoder, pages: list[Image]
) -> None:
    uri = str(tmp_path / "store")
    store_of(uri, TEXTS[: len(pages)]).close()
    with StoreWriter(uri, LINEAGE) as writer:
        lacking = sorted(writer.open_vectors(encoder.origin))
        writer.set_vectors(dict(zip(lacking, encoder.embed_pages(pages), strict=True)))
    with PageStore.open(uri) as store:
        hybrid = load_retriever("stored+bm25", store, device="cpu")
        assert hybrid.name == f"{encoder.name}+bm25"
        ids = sorted(store.page_ids())
        members = [load_retriever(name, store, device="cpu").score("revenue", ids) for name in (None, "bm25")]
        np.testing.assert_allclose(
            hybrid.score("revenue", ids), np.mean([(s - s.mean()) / s.std() for s in members], axis=0)
        )
        assert len(hybrid.search("revenue", 2)) == 2
