import numpy as np
import pytest
from PIL import Image

from ridgerank.backbones.base import cells
from ridgerank.records import Explanation, Passage, Region
from ridgerank.reranker.heatmap import STRONGEST, add_by_region, draw_heatmap, smooth_field


def explanation(
    weights: tuple[float, ...],
    kept: tuple[int, ...],
    regions: tuple[Region | None, ...],
    passages: tuple[Passage, ...] = (),
) -> Explanation:
    return Explanation(
        query="q",
        page_id="p",
        reference="a.pdf#1",
        layers=(0, 4),
        grid=(6, 4),
        kept=kept,
        weights=weights,
        regions=regions,
        page_share=sum(weights),
        instruction_share=1 - sum(weights),
        query_share=0.0,
        passages=passages,
    )


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


def test_the_strongest_position_is_heated_alike_whatever_share_the_page_had() -> None:
    page = Image.new("L", (40, 60), 255)
    strong, weak = (draw_heatmap(page, on_grid({1: weight, 2: weight / 4})) for weight in (0.8, 0.008))
    assert strong.tobytes() == weak.tobytes()


def test_words_have_the_heat_of_all_their_tokens_and_nothing_between_them_has_any() -> None:
    first, second = (0.1, 0.1, 0.4, 0.2), (0.6, 0.1, 0.9, 0.2)
    line = Passage("two words", 0.5, (0.1, 0.1, 0.9, 0.2))
    looked = explanation((0.2, 0.2, 0.1, 0.9), (0, 1, 2, 3), (first, first, second, None), (line,))
    assert add_by_region(looked) == {first: pytest.approx(0.4), second: pytest.approx(0.1)}
    drawn = heat(draw_heatmap(Image.new("RGB", (100, 100), "white"), looked))
    assert drawn[15, 25] == pytest.approx(STRONGEST, abs=1)
    assert drawn[15, 75] == pytest.approx(STRONGEST / 4, abs=1)
    assert not drawn[15, 45:55].any()
    assert not drawn[30:].any()


@pytest.mark.parametrize("looked", [on_grid({1: 0.0}), explanation((), (), ())])
def test_a_page_nobody_looked_at_stays_as_it_is(looked: Explanation) -> None:
    page = Image.new("RGB", (40, 30), "white")
    assert draw_heatmap(page, looked).tobytes() == page.tobytes()
