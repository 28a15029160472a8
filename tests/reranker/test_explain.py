"""Where a query looked: positions and shares of stored pages, lines of text, and the picture of it."""

from collections.abc import Iterator

import numpy as np
import pytest
from PIL import Image

from ridgerank.backbones.base import Backbone, cells
from ridgerank.backbones.decoder import PrefixBatch
from ridgerank.documents.render import list_pages, render_pages
from ridgerank.documents.text import TextBox, match_words
from ridgerank.errors import BackboneError, QueryError, StoreError
from ridgerank.indexing.index import index_documents
from ridgerank.lineage import Keep
from ridgerank.records import Explanation, Page, Passage, Region
from ridgerank.reranker.explain import STRONGEST, draw_heatmap, smooth_field, split_passages
from ridgerank.reranker.reranker import Reranker
from ridgerank.scoring.shallow import ShallowPass
from ridgerank.store.page_store import PageStore
from tests.calibrated_store import ByDigest, random_calibration
from tests.conftest import write_pdf

QUERY = "revenue in 2023"
TEXT = "Net sales\n\n| Asia | 12 |\nCosts"
BOXES = [
    TextBox("Net", 0.1, 0.1, 0.2, 0.15),
    TextBox("sales", 0.25, 0.1, 0.4, 0.15),
    TextBox("stamp", 0.9, 0.9, 1.0, 1.0),  # the text does not have it
    TextBox("Asia", 0.1, 0.5, 0.2, 0.55),
    TextBox("12", 0.5, 0.5, 0.55, 0.55),
]
SPANS = [(0, 3), (3, 9), (9, 11), (11, 17), (20, 22), (25, 30)]
"""Net, sales, a blank line, the first cell, the second, Costs."""
WEIGHTS = [0.1, 0.2, 0.05, 0.02, 0.03, 0.4]


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_pdf(tmp_path_factory.mktemp("explained") / "a.pdf", pages=2))


def opened(
    documents: str, backbone: Backbone, factory: pytest.TempPathFactory, *, keep: str, cache_bytes: int
) -> Reranker:
    uri = str(factory.mktemp("stores") / "store")
    index_documents(
        [documents], uri, backbone, keep=Keep.parse(keep), exit_layer=4, preset="paper", processes=0
    )
    store = PageStore.open(uri)
    calibration = random_calibration(store.lineage, backbone.geometry.width)
    shallow = ShallowPass(backbone, store, cache_bytes=cache_bytes)
    return Reranker(shallow, calibration, retriever=ByDigest(store.page_ids()))


@pytest.fixture(scope="module")
def reranker(
    documents: str, small_backbone: Backbone, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Reranker]:
    with opened(documents, small_backbone, tmp_path_factory, keep="stride 1/3", cache_bytes=1 << 20) as made:
        yield made


@pytest.fixture(scope="module")
def whole(
    documents: str, small_backbone: Backbone, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Reranker]:
    """Every position kept, read without a cache."""
    with opened(documents, small_backbone, tmp_path_factory, keep="stride 1", cache_bytes=0) as made:
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


def test_a_stored_page_is_looked_at_as_the_page_itself_by_layer_and_by_their_mean(
    documents: str, whole: Reranker, small_backbone: Backbone
) -> None:
    """int8 moves a weight by little."""
    single: list[Explanation] = []
    [page, _] = [
        page
        for page in render_pages(list_pages([documents]), max_pixels=small_backbone.max_pixels)
        if isinstance(page, Page)
    ]
    [prefix] = small_backbone.encode([page.image], exit_layer=4)
    exact = small_backbone.attention(QUERY, PrefixBatch([prefix]))
    for layer in range(4):
        explanation = whole.explain(QUERY, page.page_id, layer=layer)
        assert_whole(explanation)
        assert explanation.layers == (layer, layer + 1)
        assert explanation.kept == tuple(range(len(explanation.kept)))
        weights = exact[layer, : prefix.count]
        np.testing.assert_allclose(explanation.weights, weights[prefix.visual], atol=2e-3)
        # The suffix opens with the instruction's last token.
        instruction = weights[~prefix.visual].sum() + exact[layer, prefix.count]
        assert explanation.instruction_share == pytest.approx(float(instruction), abs=0.01)
        single.append(explanation)
    together = whole.explain(QUERY, page.page_id)
    assert together.layers == (0, 4)
    np.testing.assert_allclose(together.weights, np.mean([each.weights for each in single], axis=0))
    assert together.query_share == pytest.approx(np.mean([each.query_share for each in single]))


def test_what_cannot_be_explained_is_said(reranker: Reranker) -> None:
    with pytest.raises(StoreError, match=r"no page 'b\.pdf#1'"):
        reranker.explain(QUERY, "b.pdf#1")
    with pytest.raises(BackboneError, match="layer 4 of a store that holds layers 0 to 3"):
        reranker.explain(QUERY, "a.pdf#1", layer=4)
    with pytest.raises(QueryError, match="empty"):
        reranker.explain(" ", "a.pdf#1")


def test_a_line_has_the_attention_of_its_tokens_and_the_box_around_its_words() -> None:
    passages = split_passages(TEXT, SPANS, WEIGHTS, list(match_words(TEXT, BOXES)))
    assert [passage.text for passage in passages] == ["Net sales", "| Asia | 12 |", "Costs"]
    assert [passage.weight for passage in passages] == pytest.approx([0.35, 0.05, 0.4])
    assert [passage.region for passage in passages] == [(0.1, 0.1, 0.4, 0.15), (0.1, 0.5, 0.55, 0.55), None]


def explanation(
    weights: tuple[float, ...],
    kept: tuple[int, ...],
    regions: tuple[Region | None, ...],
    passages: tuple[Passage, ...] = (),
) -> Explanation:
    share = sum(weights)
    shares = (share, 1 - share, 0.0)
    return Explanation("q", "p", "a.pdf#1", (0, 4), (6, 4), kept, weights, regions, *shares, passages)


def on_grid(weights: dict[int, float]) -> Explanation:
    regions = tuple((a, b, c, d) for a, b, c, d in cells(6, 4)[list(weights)].tolist())
    return explanation(tuple(weights.values()), tuple(weights), regions)


def heat(image: Image.Image) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    return 255 - np.asarray(image).astype(int)[..., 2]  # white has all of the blue, the heat none


def test_heat_is_strongest_where_the_query_looked_most_and_falls_off_smoothly() -> None:
    page = Image.new("RGB", (80, 120), "white")
    weights = dict.fromkeys(range(24), 0.001) | {5: 0.5}  # row 1, column 1: x 20 to 40, y 20 to 40
    drawn = heat(draw_heatmap(page, on_grid(weights)))
    assert drawn.max() == pytest.approx(STRONGEST, abs=6)
    assert drawn[30, 30] > 0.9 * drawn.max()
    assert np.abs(np.diff(drawn[30])).max() < 0.2 * STRONGEST  # no edge of a cell shows
    assert drawn[110, 70] < 0.1 * STRONGEST
    assert np.asarray(page).min() == 255  # the page itself is left alone


def test_positions_that_were_not_kept_take_the_heat_of_their_neighbours() -> None:
    striped = smooth_field(on_grid(dict.fromkeys(range(1, 24, 3), 0.1)), 24, 36)
    np.testing.assert_allclose(striped, 0.1, rtol=1e-4)


def test_words_have_the_heat_of_all_their_tokens_and_nothing_between_them_has_any() -> None:
    first, second = (0.1, 0.1, 0.4, 0.2), (0.6, 0.1, 0.9, 0.2)
    line = Passage("two words", 0.5, (0.1, 0.1, 0.9, 0.2))
    looked = explanation((0.2, 0.2, 0.1, 0.9), (0, 1, 2, 3), (first, first, second, None), (line,))
    drawn = heat(draw_heatmap(Image.new("RGB", (100, 100), "white"), looked))
    assert drawn[15, 25] == pytest.approx(STRONGEST, abs=1)
    assert drawn[15, 75] == pytest.approx(STRONGEST / 4, abs=1)
    assert not drawn[15, 45:55].any()
    assert not drawn[30:].any()


@pytest.mark.parametrize("looked", [on_grid({1: 0.0}), explanation((), (), ())])
def test_a_page_nobody_looked_at_stays_as_it_is(looked: Explanation) -> None:
    page = Image.new("RGB", (40, 30), "white")
    assert draw_heatmap(page, looked).tobytes() == page.tobytes()
