"""Which part of a page each visual position stands for, in fractions of width and height. Pure geometry."""

import numpy as np
from numpy.typing import NDArray

Regions = NDArray[np.float64]
"""(positions, 4): left, top, right, bottom, each from 0 to 1."""


def cells(rows: int, columns: int) -> Regions:
    """A page cut into rows x columns equal cells, in raster order."""
    top, left = (index.ravel() for index in np.indices((rows, columns)))
    edges = np.stack([left, top, left + 1, top + 1], axis=1)
    regions: Regions = edges / np.array([columns, rows, columns, rows])
    return regions


def tiled(grid: tuple[int, int], aspect: float) -> Regions:
    """A page cut into square tiles row by row, then seen whole: a grid of tiles stacked below each other.

    `grid` is ((tiles + 1) x side, side). How many tiles stand in a row is not in it; the longer side of a
    page is cut into a fixed number, and among the ways to lay out so many tiles the one nearest to `aspect`
    (width over height) is then the right one.
    """
    side = grid[1]
    count = grid[0] // side - 1
    within = cells(side, side)
    if count == 0:
        return within
    columns = min(
        (number for number in range(1, count + 1) if count % number == 0),
        key=lambda number: abs(np.log(number**2 / count / aspect)),
    )
    rows = count // columns
    corners = cells(rows, columns)[:, :2]
    small = within / np.array([columns, rows, columns, rows])
    tiles = small[None] + np.tile(corners, 2)[:, None]
    return np.concatenate([tiles.reshape(-1, 4), within])
