"""Small pages with known contents, for the tests of the store."""

import hashlib

import numpy as np

from ridgerank.lineage import Lineage
from ridgerank.store.layout import PackedPrefix
from ridgerank.store.rows import PageRow, StoredPage
from ridgerank.store.vector_columns import VectorOrigin

LINEAGE = Lineage(
    backbone="tiny",
    family="qwen2_5_vl",
    weights="w" * 32,
    transformers="5.22.0",
    processor="p" * 32,
    prompt="q" * 32,
    exit_layer=3,
    join_layer=0,
    keep="stride 1/3",
    quantization="int8",
)

ORIGIN = VectorOrigin(source="colqwen2", fingerprint="f" * 32, dim=4, pool_factor=1)


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
    for name in ("keys", "values", "key_scales", "value_scales", "positions", "visual"):
        np.testing.assert_array_equal(getattr(found, name), getattr(wanted, name), err_msg=name)
        assert getattr(found, name).dtype == getattr(wanted, name).dtype
    assert (found.next_position, found.grid) == (wanted.next_position, wanted.grid)
