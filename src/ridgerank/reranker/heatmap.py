"""An explanation drawn over the page: heat where the query looked. Knows pixels, no model and no store."""

import numpy as np
from PIL import Image, ImageDraw

from ridgerank.ragged import Floats
from ridgerank.records import Explanation, Region

HEAT = (230, 60, 0)
STRONGEST = 170
"""Opacity, of 255, of the part looked at most: what is printed there stays readable."""
_FIELD_SIDE = 96
"""Points along the longer side at which the heat of an image is computed; between them it is interpolated."""
_WIDTH = 0.55
"""Standard deviation of a position's heat, in mean distances between kept positions."""


def draw_heatmap(image: Image.Image, explanation: Explanation) -> Image.Image:
    """A copy of the page with translucent heat, strongest where the query looked most.

    Where the model reads the image, heat is the mean of the positions around a point, the nearer the more:
    positions that were not kept take it from their neighbours. Where it reads text, each word has the heat of
    its own tokens together.
    """
    heated = image.convert("RGB")
    opacity = _word_opacity(image.size, explanation) if explanation.passages else None
    heated.paste(HEAT, mask=opacity or _smooth_opacity(image.size, explanation))
    return heated


def _word_opacity(size: tuple[int, int], explanation: Explanation) -> Image.Image:
    opacity = Image.new("L", size)
    canvas = ImageDraw.Draw(opacity)
    words = add_by_region(explanation)
    highest = max(words.values(), default=0.0) or 1.0
    for region, weight in words.items():
        left, top, right, bottom = (edge * side for edge, side in zip(region, size * 2, strict=True))
        fill = round(STRONGEST * weight / highest)
        canvas.rounded_rectangle((left, top, right, bottom), radius=(bottom - top) / 5, fill=fill)
    return opacity


def add_by_region(explanation: Explanation) -> dict[Region, float]:
    """The attention on each part of the page that some position stands for."""
    sums: dict[Region, float] = {}
    for weight, region in zip(explanation.weights, explanation.regions, strict=True):
        if region is not None:
            sums[region] = sums.get(region, 0.0) + weight
    return sums


def _smooth_opacity(size: tuple[int, int], explanation: Explanation) -> Image.Image:
    scale = _FIELD_SIDE / max(size)
    columns, rows = (max(1, round(side * scale)) for side in size)
    field = smooth_field(explanation, columns, rows)
    levels = np.rint(STRONGEST * field / (field.max() or 1.0)).astype(np.uint8)
    return Image.fromarray(levels).resize(size, Image.Resampling.BICUBIC)


def smooth_field(explanation: Explanation, columns: int, rows: int) -> Floats:
    """(rows, columns): Σ g(x − xᵢ) aᵢ / Σ g(x − xᵢ), xᵢ kept positions with attention aᵢ, g a Gaussian."""
    kept = [
        (weight, region)
        for weight, region in zip(explanation.weights, explanation.regions, strict=True)
        if region is not None
    ]
    if not kept:
        return np.zeros((rows, columns))
    weights = np.array([weight for weight, _ in kept])
    left, top, right, bottom = np.array([region for _, region in kept]).T
    x, y = (left + right) / 2 * columns, (top + bottom) / 2 * rows
    width = _WIDTH * np.sqrt(columns * rows / len(kept))
    near_x = np.exp(-(((np.arange(columns) + 0.5)[:, None] - x) ** 2) / (2 * width**2))
    near_y = np.exp(-(((np.arange(rows) + 0.5)[:, None] - y) ** 2) / (2 * width**2))
    field: Floats = (near_y * weights) @ near_x.T / np.maximum(near_y @ near_x.T, 1e-9)
    return field
