"""Where a query looked, over stored pages: positions, shares, and the same at one layer as the model says."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from ridgerank.backbones.base import Backbone
from ridgerank.backbones.prefix import PrefixBatch
from ridgerank.documents.render import read_pages
from ridgerank.errors import QueryError, StoreError
from ridgerank.indexing.index import index_documents
from ridgerank.records import Explanation, Page
from ridgerank.reranker.reranker import Reranker
from ridgerank.scoring.shallow import ShallowPass
from ridgerank.store.page_store import PageStore
from ridgerank.store.storage_setting import Keep
from tests.calibrated_store import ByDigest, random_calibration
from tests.conftest import write_pdf

QUERY = "revenue in 2023"


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_pdf(tmp_path_factory.mktemp("explained") / "a.pdf", pages=2))


def opened(
    documents: str,
    backbone: Backbone,
    factory: pytest.TempPathFactory,
    *,
    keep: str,
    cache_bytes: int = 1 << 20,
) -> Reranker:
    uri = str(factory.mktemp("stores") / "store")
    index_documents(
        [documents],
        uri,
        backbone,
        keep=Keep.parse(keep),
        exit_layer=4,
        processes=1,
    )
    store = PageStore.open(uri)
    calibration = random_calibration(store.lineage, backbone.geometry.width)
    shallow = ShallowPass(backbone, store, cache_bytes=cache_bytes)
    return Reranker(shallow, calibration, retriever=ByDigest(store.page_ids()))


@pytest.fixture(scope="module")
def reranker(
    documents: str, small_backbone: Backbone, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Reranker]:
    with opened(documents, small_backbone, tmp_path_factory, keep="stride 1/3") as made:
        yield made


@pytest.fixture(scope="module")
def whole(
    documents: str,
    small_backbone: Backbone,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Reranker]:
    """Every position kept, read without a cache."""
    with opened(
        documents,
        small_backbone,
        tmp_path_factory,
        keep="stride 1",
        cache_bytes=0,
    ) as made:
        yield made


def assert_whole(explanation: Explanation) -> None:
    shares = explanation.page_share, explanation.instruction_share, explanation.query_share
    assert min(shares) > 0
    assert sum(shares) == pytest.approx(1, abs=1e-6)
    assert sum(explanation.weights) == pytest.approx(explanation.page_share)
    assert len(explanation.kept) == len(explanation.weights) == len(explanation.regions)


def test_the_positions_are_those_the_store_kept(reranker: Reranker) -> None:
    explanation = reranker.explain(f" {QUERY} ", "a.pdf#2")
    assert_whole(explanation)
    assert (explanation.query, explanation.reference) == (QUERY, "a.pdf#2")
    assert explanation.page_id == reranker.store.find("a.pdf#2")
    rows, columns = explanation.grid
    [page] = reranker.store.read_prefixes([explanation.page_id])
    assert len(explanation.kept) == round(rows * columns / 3)
    # stride 1/3 keeps the middle one of every three
    assert list(explanation.kept) == list(range(1, rows * columns, 3))[: len(explanation.kept)]
    assert int(page.visual.sum()) == len(explanation.kept)
    for cell, region in zip(explanation.kept, explanation.regions, strict=True):
        row, column = divmod(cell, columns)
        edges = (column / columns, row / rows, (column + 1) / columns, (row + 1) / rows)
        assert region == pytest.approx(edges)


def test_a_stored_page_is_looked_at_as_the_page_itself(
    documents: str, whole: Reranker, small_backbone: Backbone
) -> None:
    """int8 moves a weight by little."""
    [page, _] = [
        page
        for page in read_pages([documents], max_pixels=small_backbone.max_pixels)
        if isinstance(page, Page)
    ]
    [prefix] = small_backbone.encode([page.image], exit_layer=4)
    exact = small_backbone.attention(QUERY, PrefixBatch([prefix]))
    for layer in range(4):
        explanation = whole.explain(QUERY, page.page_id, layer=layer)
        assert_whole(explanation)
        assert explanation.layers == (layer, layer + 1)
        assert explanation.kept == tuple(range(len(explanation.kept)))
        weights = exact.over_prefix[layer, 0]
        np.testing.assert_allclose(explanation.weights, weights[prefix.visual], atol=2e-3)
        # The suffix opens with the instruction's last token.
        instruction = weights[~prefix.visual].sum() + exact.over_suffix[layer, 0, 0]
        assert explanation.instruction_share == pytest.approx(float(instruction), abs=0.01)


def test_without_a_layer_it_is_the_mean_of_all_stored_ones(whole: Reranker) -> None:
    together = whole.explain(QUERY, "a.pdf#1")
    assert together.layers == (0, 4)
    single = [whole.explain(QUERY, "a.pdf#1", layer=layer) for layer in range(4)]
    np.testing.assert_allclose(together.weights, np.mean([each.weights for each in single], axis=0))
    assert together.query_share == pytest.approx(np.mean([each.query_share for each in single]))


def test_the_states_of_an_explained_page_are_those_of_the_request(reranker: Reranker) -> None:
    shallow = ShallowPass(reranker.backbone, reranker.store)
    page_id = reranker.store.find("a.pdf#1")
    attention, _ = shallow.attend(QUERY, page_id)
    assert torch.equal(attention.states, shallow.run(QUERY, [page_id]).states)


def test_what_cannot_be_explained_is_said(reranker: Reranker) -> None:
    with pytest.raises(StoreError, match=r"no page 'b\.pdf#1'"):
        reranker.explain(QUERY, "b.pdf#1")
    with pytest.raises(StoreError, match="layer 4 of a store that holds layers 0 to 3"):
        reranker.explain(QUERY, "a.pdf#1", layer=4)
    with pytest.raises(QueryError, match="empty query"):
        reranker.explain(" ", "a.pdf#1")
