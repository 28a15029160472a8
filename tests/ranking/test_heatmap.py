import numpy as np
import pytest
from PIL import Image

from ridgerank.backbones.regions import cells
from ridgerank.ranking.heatmap import HEAT, STRONGEST, draw_heatmap
from ridgerank.records import Explanation

Region = tuple[float, float, float, float]


def explanation(
    weights: tuple[float, ...], kept: tuple[int, ...], regions: tuple[Region, ...]
) -> Explanation:
    return Explanation(
        query="q",
        page_id="p",
        reference="a.pdf#1",
        layers=(0, 4),
        grid=(3, 4),
        kept=kept,
        weights=weights,
        regions=regions,
        page_share=sum(weights),
        instruction_share=1 - sum(weights),
        query_share=0.0,
    )


def on_grid(weights: dict[int, float]) -> Explanation:
    regions = tuple((a, b, c, d) for a, b, c, d in cells(3, 4)[list(weights)].tolist())
    return explanation(tuple(weights.values()), tuple(weights), regions)


def test_heat_lies_on_kept_positions_in_proportion_and_nowhere_else() -> None:
    page = Image.new("RGB", (41, 31), "white")
    found = np.asarray(draw_heatmap(page, on_grid({1: 0.2, 6: 0.1, 11: 0.0}))).astype(int)
    cooled = 255 - found[..., 2]  # white has all of the blue, the heat none
    assert cooled[5, 15] == pytest.approx(STRONGEST, abs=1)
    assert cooled[15, 25] == pytest.approx(STRONGEST / 2, abs=1)
    clear = np.ones(cooled.shape, dtype=bool)
    clear[0:10, 10:20] = clear[10:21, 20:31] = False
    assert not cooled[clear].any()
    assert (cooled[0:10, 10:20] == cooled[5, 15]).all()
    assert np.asarray(page).min() == 255  # the page itself is left alone


def test_the_strongest_position_is_heated_alike_whatever_share_the_page_had() -> None:
    page = Image.new("L", (40, 30), 255)
    strong, weak = (draw_heatmap(page, on_grid({1: weight, 2: weight / 4})) for weight in (0.8, 0.008))
    assert strong.tobytes() == weak.tobytes()
    assert strong.getpixel((15, 5)) == tuple(round(255 + (part - 255) * STRONGEST / 255) for part in HEAT)


def test_where_the_page_is_seen_twice_the_stronger_look_shows() -> None:
    whole, part = (0.0, 0.0, 1.0, 1.0), (0.0, 0.0, 0.5, 0.5)
    page = Image.new("RGB", (40, 30), "white")
    once = draw_heatmap(page, explanation((0.4,), (0,), (whole,)))
    for weights, regions in (((0.4, 0.1), (whole, part)), ((0.1, 0.4), (part, whole))):
        assert draw_heatmap(page, explanation(weights, (0, 1), regions)).tobytes() == once.tobytes()


def test_neighbours_share_no_pixel_and_a_page_smaller_than_its_grid_is_drawn() -> None:
    for size in ((41, 31), (3, 2)):
        page = Image.new("RGB", size, "white")
        even = on_grid(dict.fromkeys(range(12), 0.05))
        pixels = np.asarray(draw_heatmap(page, even)).reshape(-1, 3)
        assert len(np.unique(pixels, axis=0)) == 1


def test_a_page_nobody_looked_at_stays_as_it_is() -> None:
    page = Image.new("RGB", (40, 30), "white")
    assert draw_heatmap(page, on_grid({1: 0.0})).tobytes() == page.tobytes()
