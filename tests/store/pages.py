"""Small pages with known contents, for the tests of the store."""

import hashlib
from dataclasses import replace

import numpy as np

from ridgerank.lineage import PAPER_NUMBERS, Keep, Lineage, NumberFormat, StorageSetting
from ridgerank.store.layout import BlockShape, PackedPrefix, SharedPositions, array_spans
from ridgerank.store.page_store import PageRow, StoredPage
from ridgerank.store.vector_columns import VectorOrigin

LINEAGE = Lineage(
    backbone="tiny",
    family="qwen2_5_vl",
    weights="w" * 32,
    transformers="5.22.0",
    processor="p" * 32,
    prompt="q" * 32,
    storage=StorageSetting(Keep(), PAPER_NUMBERS, 3),
)

PACKED_LINEAGE = replace(LINEAGE, storage=StorageSetting(Keep(), NumberFormat(4, 3, 8), 3))
"""Of a store that holds the pages of `packed_row`."""

ORIGIN = VectorOrigin(source="colqwen2", fingerprint="f" * 32, dim=4)


def page_id(number: int) -> str:
    return hashlib.blake2b(f"page {number}".encode(), digest_size=32).hexdigest()


def prefix(number: int, *, layers: int = 3, positions: int | None = None, head_dim: int = 8) -> PackedPrefix:
    """A prefix that depends on nothing but its arguments."""
    random = np.random.default_rng(number)
    count = 5 + number % 7 if positions is None else positions
    shape = (layers, 2, count, head_dim)
    return PackedPrefix(
        keys=random.integers(-127, 128, shape, dtype=np.int8),
        values=random.integers(-127, 128, shape, dtype=np.int8),
        key_scales=random.integers(0, 1 << 16, (layers, 2, head_dim), dtype=np.uint16),
        value_scales=random.integers(0, 1 << 16, (layers, 2, count), dtype=np.uint16),
        positions=np.arange(count, dtype=np.int32) * 3,
        visual=np.arange(count) % 2 == 0,
        next_position=3 * count,
        grid=(count, 3),
    )


SHARED: SharedPositions = np.random.default_rng(7).normal(size=(2, 3, 2, 2, 8)).astype(np.float32)


def packed_prefix(
    number: int,
    numbers: NumberFormat,
    *,
    layers: int = 3,
    positions: int | None = None,
    head_dim: int = 8,
    shared: SharedPositions | None = SHARED,
) -> PackedPrefix:
    """A prefix of packed codes: after the shared positions every third of a page, then two more."""
    random = np.random.default_rng(number)
    count = 5 + number % 7 if positions is None else positions
    before = 0 if shared is None else shared.shape[3]
    cells = 3 * (count - 2)
    kept = [*range(before, before + cells, 3), before + cells, before + cells + 1]
    shape = BlockShape(layers, 2, count, head_dim, 0, (1, cells), numbers, before, before + cells + 2)
    arrays = {
        name: random.integers(0, 1 << 8 * span.dtype.itemsize, span.shape, dtype=span.dtype)
        for name, span in array_spans(shape).items()
        if not name.endswith("_bits")
    }
    return PackedPrefix(
        **arrays,
        positions=np.array(kept, dtype=np.int32),
        visual=np.arange(count) < count - 2,
        next_position=number,
        grid=(1, cells),
        numbers=numbers,
        shared=shared,
    )


def packed_row(number: int, *, positions: int | None = None) -> PageRow:
    packed = packed_prefix(number, PACKED_LINEAGE.storage.numbers, positions=positions)
    return PageRow(row(number).page, packed)


def row(number: int, **shape: int) -> PageRow:
    return PageRow(
        StoredPage(
            page_id=page_id(number),
            references=(f"report.pdf#{number}",),
            source="digest of report.pdf",
            text=f"text of page {number}",
            thumbnail=bytes([number % 256] * 20),
        ),
        prefix(number, **shape),
    )


def assert_same(found: PackedPrefix, wanted: PackedPrefix) -> None:
    packed = () if wanted.numbers.symmetric else ("key_minima", "value_minima")
    for name in ("keys", "values", "key_scales", "value_scales", "positions", "visual", *packed):
        np.testing.assert_array_equal(getattr(found, name), getattr(wanted, name), err_msg=name)
        assert getattr(found, name).dtype == getattr(wanted, name).dtype
    assert (found.next_position, found.grid) == (wanted.next_position, wanted.grid)
    assert found.numbers == wanted.numbers
    assert found.shared is wanted.shared
