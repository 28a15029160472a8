from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL.Image import Image
from torch import Tensor

from ridgerank.errors import LineageMismatch, RetrieverError, StoreError
from ridgerank.records import Candidate
from ridgerank.retrievers import late_interaction as module
from ridgerank.retrievers.base import top_candidates
from ridgerank.retrievers.encoders import MultiVectorEncoder
from ridgerank.retrievers.late_interaction import LateInteraction
from ridgerank.store import vector_columns
from ridgerank.store.page_filter import PageFilter, PageSelection
from ridgerank.store.page_store import PageStore
from ridgerank.store.store_writer import StoreWriter
from ridgerank.store.vector_columns import VectorOrigin
from tests.store.pages import LINEAGE, page_id, row

QUERIES = ["what was the revenue in 2023?", "who is on page 7", "cats"]


def fill(uri: str, origin: VectorOrigin, vectors: Sequence[NDArray[np.float16]], *, batch: int = 5) -> None:
    with StoreWriter(uri, LINEAGE) as writer:
        writer.open_vectors(origin)
        for first in range(0, len(vectors), batch):
            numbers = range(first, min(first + batch, len(vectors)))
            rows = [(row(number, layers=1, positions=1), vectors[number]) for number in numbers]
            writer.append([replace(each, page=replace(each.page, vectors=own)) for each, own in rows])


@pytest.fixture(scope="module")
def vectors(encoder: MultiVectorEncoder) -> list[NDArray[np.float16]]:
    random = np.random.default_rng(0)
    raw_vectors = [random.standard_normal((3 + number % 4, encoder.dim)) for number in range(23)]
    return [(raw / np.linalg.norm(raw, axis=1, keepdims=True)).astype(np.float16) for raw in raw_vectors]


@pytest.fixture(scope="module")
def store(
    encoder: MultiVectorEncoder, vectors: list[NDArray[np.float16]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PageStore]:
    uri = str(tmp_path_factory.mktemp("late") / "store")
    fill(uri, encoder.origin, vectors)
    with PageStore.open(uri) as opened:
        yield opened


def brute_force(
    encoder: MultiVectorEncoder, query: str, vectors: list[NDArray[np.float16]]
) -> list[tuple[str, float]]:
    [embedded] = encoder.embed_queries([query])
    scored = []
    for number, page in enumerate(vectors):
        products = embedded @ torch.from_numpy(page.astype(np.float32)).T
        scored.append((page_id(number), float(products.max(dim=1).values.sum())))
    return sorted(scored, key=lambda pair: (-pair[1], pair[0]))


@pytest.mark.parametrize("resident_bytes", [0, 1 << 20])
def test_search_is_brute_force_maxsim(
    encoder: MultiVectorEncoder,
    vectors: list[NDArray[np.float16]],
    store: PageStore,
    monkeypatch: pytest.MonkeyPatch,
    resident_bytes: int,
) -> None:
    monkeypatch.setattr(module, "_RESIDENT_BYTES", resident_bytes)
    retriever = LateInteraction(encoder, store)
    assert retriever.name == "small-colqwen"
    for _ in range(2):  # the second time from memory, where it may be kept
        for query, candidates in zip(QUERIES, retriever.search_many(QUERIES, 7), strict=True):
            expected = brute_force(encoder, query, vectors)[:7]
            assert [candidate.page_id for candidate in candidates] == [page for page, _ in expected]
            np.testing.assert_allclose(
                [candidate.score for candidate in candidates], [score for _, score in expected], rtol=1e-5
            )
            assert retriever.search(query, 7)[0].page_id == expected[0][0]
    assert (retriever._resident is None) == (resident_bytes == 0)


def test_given_pages_are_scored_on_the_scale_of_search(encoder: MultiVectorEncoder, store: PageStore) -> None:
    retriever = LateInteraction(encoder, store)
    candidates = retriever.search(QUERIES[0], 5)
    ids = [candidate.page_id for candidate in reversed(candidates)]
    np.testing.assert_allclose(
        retriever.score(QUERIES[0], ids), [candidate.score for candidate in reversed(candidates)], rtol=1e-5
    )
    assert retriever.score(QUERIES[0], []).shape == (0,)
    assert len(retriever.search("revenue " * 400, 1000)) == 23
    with pytest.raises(StoreError, match="nothing"):
        retriever.score(QUERIES[0], ["nothing"])


class Fake(MultiVectorEncoder):
    """An encoder whose queries are vectors it was told."""

    def __init__(self, origin: VectorOrigin, queries: dict[str, NDArray[np.float32]]) -> None:
        self.source = origin.source
        self._origin, self._queries = origin, queries

    @property
    def origin(self) -> VectorOrigin:
        return self._origin

    @property
    def dim(self) -> int:
        return self._origin.dim

    def embed_queries(self, queries: Sequence[str]) -> list[Tensor]:
        return [torch.from_numpy(self._queries[query]) for query in queries]

    def _page(self, image: Image) -> Tensor:
        raise NotImplementedError

    def _query_batch(self, ids: Tensor, mask: Tensor) -> Tensor:
        raise NotImplementedError


def test_with_an_index_the_best_are_those_of_the_exact_search_and_a_filter_holds_wherever_its_pages_lie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two documents of three hundred pages, each about its own topics; one cell is searched first."""
    random = np.random.default_rng(4)
    pages, dim = 600, 16
    topics = random.standard_normal((2, 8, dim))
    documents = np.arange(pages) // 300
    raw_vectors = topics[documents[:, None], random.integers(0, 8, (pages, 4))]
    raw_vectors = raw_vectors + 0.2 * random.standard_normal(raw_vectors.shape)
    vectors = (raw_vectors / np.linalg.norm(raw_vectors, axis=2, keepdims=True)).astype(np.float16)
    encoder = Fake(VectorOrigin("fake", "f", dim), {"of the first": vectors[7].astype(np.float32)})
    uri = str(tmp_path / "store")
    fill(uri, encoder.origin, list(vectors), batch=300)
    references = {page_id(number): [f"{documents[number]}.pdf#{number % 300 + 1}"] for number in range(pages)}
    with StoreWriter(uri, LINEAGE) as writer:
        writer.set_references(references)
    few = PageSelection(frozenset(page_id(number) for number in range(300, 400)), "never evaluated")
    with PageStore.open(uri) as store:
        second = store.select(PageFilter.of("1.pdf"))
        exact = [
            LateInteraction(encoder, store).search_within(["of the first"], 10, part)
            for part in (few, second, None)
        ]
    with StoreWriter(uri, LINEAGE) as writer:
        writer.index_vectors()
    with PageStore.open(uri) as store:
        retriever = LateInteraction(encoder, store)
        best, expected = retriever.search("of the first", 10), exact[2][0]
        assert best[0].page_id == expected[0].page_id
        assert len({each.page_id for each in best} & {each.page_id for each in expected}) >= 9
        monkeypatch.setattr(vector_columns, "_PROBES", 1)
        assert retriever.search_within(["of the first"], 10, few) == exact[0]
        [candidates] = retriever.search_within(["of the first"], 10, second)
        assert len(candidates) == 10
        assert {candidate.page_id for candidate in candidates} <= second.page_ids
        page_ids = [candidate.page_id for candidate in candidates]
        scores = [candidate.score for candidate in candidates]
        np.testing.assert_allclose(scores, retriever.score("of the first", page_ids), rtol=1e-6)
        assert candidates[0].score <= exact[1][0][0].score


def test_vectors_of_another_retriever_are_refused(encoder: MultiVectorEncoder, store: PageStore) -> None:
    other = replace(encoder.origin, fingerprint="0" * 32, source="colpali")
    with pytest.raises(LineageMismatch, match=r"small-colqwen' \(.*\), not of 'colpali' \(0000"):
        LateInteraction(Fake(other, {}), store)


def test_an_empty_store_no_vectors_and_missing_vectors_are_told_apart(
    encoder: MultiVectorEncoder, vectors: list[NDArray[np.float16]], tmp_path: Path
) -> None:
    uri = str(tmp_path / "store")
    StoreWriter(uri, LINEAGE).close()
    with PageStore.open(uri) as store, pytest.raises(RetrieverError, match="is empty; index documents"):
        LateInteraction(encoder, store)
    with StoreWriter(uri, LINEAGE) as writer:
        writer.append([row(100)])
    with (
        PageStore.open(uri) as store,
        pytest.raises(RetrieverError, match=r"holds no vectors.*index the documents"),
    ):
        LateInteraction(encoder, store)
    fill(uri, encoder.origin, vectors[:3])
    with (
        PageStore.open(uri) as store,
        pytest.raises(RetrieverError, match=r"1 of 4 pages .* have no vectors, report.pdf#100 among them"),
    ):
        LateInteraction(encoder, store)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=30), st.integers(1, 40))
def test_the_best_are_the_head_of_the_whole_order(scores: list[int], k: int) -> None:
    ids = [f"{(7 * position) % 31:02}" for position in range(len(scores))]
    whole = sorted(zip(ids, map(float, scores), strict=True), key=lambda pair: (-pair[1], pair[0]))
    assert top_candidates(ids, np.array(scores, dtype=np.float64), k) == [
        Candidate(*pair) for pair in whole[:k]
    ]
