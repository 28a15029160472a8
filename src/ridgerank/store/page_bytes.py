"""Bytes of a page in any setting, before it is stored so: the layout's, to the byte."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import numpy as np

from ridgerank.store.block_arrays import HEADER_BYTES, BlockShape
from ridgerank.store.layout import read_header
from ridgerank.store.pruning import Keep
from ridgerank.store.storage_setting import StorageSetting

if TYPE_CHECKING:
    from ridgerank.store.page_store import PageStore

_SAMPLED_PAGES = 256


@dataclass(frozen=True, slots=True)
class PageShape:
    """What the bytes of a page depend on, apart from the setting."""

    kv_heads: int
    head_dim: int
    page_positions: int
    """Visual positions of a page, or tokens of its text."""
    before_page: int
    """Positions of the prompt before the page: packed numbers keep them once for all pages."""
    after_page: int
    """All others that are stored: the instruction up to the query, and marks within the page."""

    def with_before_page(self, count: int) -> Self:
        """The same page where so many of the prompt's positions stand before it."""
        return replace(self, before_page=count, after_page=self.before_page + self.after_page - count)


def count_page_bytes(shape: PageShape, setting: StorageSetting, *, join_layer: int = 0) -> int:
    """Bytes of a page's prefix; of the paper's numbers, the positions before the page are among them."""
    shared = 0 if setting.numbers.symmetric else shape.before_page
    around = shape.before_page + shape.after_page
    return BlockShape(
        setting.exit_layer - join_layer,
        shape.kv_heads,
        setting.keep.count(shape.page_positions) + around - shared,
        shape.head_dim,
        0,
        (1, shape.page_positions),
        setting.numbers,
        shared,
        0 if setting.numbers.symmetric else shape.page_positions + around,
    ).nbytes


def mean_page_bytes(shapes: Sequence[PageShape], setting: StorageSetting, *, join_layer: int = 0) -> float:
    """Mean over pages."""
    return sum(count_page_bytes(shape, setting, join_layer=join_layer) for shape in shapes) / len(shapes)


def sample_page_shapes(store: "PageStore", before_page: int) -> list[PageShape]:
    """The shapes of some stored pages, spread over the store, from their headers.

    `before_page` is the number of positions that a packed page shares with all others.
    """
    page_ids = store.page_ids()
    keep = Keep.parse(store.lineage.keep)
    sampled = page_ids[:: max(1, len(page_ids) // _SAMPLED_PAGES)]
    shapes = []
    for entry in store.catalog.entries(sampled):
        header = np.empty(HEADER_BYTES, dtype=np.uint8)
        store.blocks.read(entry.prefix_range, 0, header.data)
        block = read_header(header)
        visual = block.grid[0] * block.grid[1]
        around = block.positions + block.shared - keep.count(visual)
        shapes.append(PageShape(block.kv_heads, block.head_dim, visual, before_page, around - before_page))
    return shapes
