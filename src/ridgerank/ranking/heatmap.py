"""An explanation drawn over the page: heat where the query looked. Knows pixels, no model and no store."""

from PIL import Image, ImageDraw

from ridgerank.records import Explanation

HEAT = (230, 60, 0)
STRONGEST = 170
"""Opacity, of 255, of the position looked at most: what is printed there stays readable."""


def draw_heatmap(image: Image.Image, explanation: Explanation) -> Image.Image:
    """A copy of the page with translucent heat on each kept position, in proportion to its weight.

    The position looked at most is the strongest, whatever share of attention the page had. Positions that
    were not kept stay clear. Where a family sees a part of the page twice, the stronger look shows.
    """
    opacity = Image.new("L", image.size)
    canvas = ImageDraw.Draw(opacity)
    highest = max(explanation.weights, default=0.0) or 1.0
    for weight, region in sorted(zip(explanation.weights, explanation.regions, strict=True)):
        canvas.rectangle(_pixels(region, image.size), fill=round(STRONGEST * weight / highest))
    heated = image.convert("RGB")
    heated.paste(HEAT, mask=opacity)
    return heated


def _pixels(region: tuple[float, float, float, float], size: tuple[int, int]) -> tuple[int, int, int, int]:
    """First and last pixel of a region along both axes: neighbours share none, and each has at least one."""
    left, top, right, bottom = (round(edge * extent) for edge, extent in zip(region, size * 2, strict=True))
    return left, top, max(left, right - 1), max(top, bottom - 1)
