"""Small pages with known contents, for the tests of the store."""

import hashlib
from dataclasses import replace

import numpy as np

from ridgerank.lineage import Keep, Lineage, StorageSetting
from ridgerank.store.layout import Basis, LayerGroup, PackedPrefix, digest_basis
from ridgerank.store.page_store import PageRow, StoredPage
from ridgerank.store.vector_columns import VectorOrigin

LINEAGE = Lineage(
    backbone="tiny",
    family="qwen2_5_vl",
    weights="w" * 32,
    processor="p" * 32,
    prompt="q" * 32,
    storage=StorageSetting(Keep(), 3),
)

ORIGIN = VectorOrigin(source="colqwen2", fingerprint="f" * 32, dim=4)


def page_id(number: int) -> str:
    return hashlib.blake2b(f"page {number}".encode(), digest_size=32).hexdigest()


def prefix(number: int, *, layers: int = 3, positions: int | None = None, head_dim: int = 8) -> PackedPrefix:
    """An int8 prefix that depends on nothing but its arguments."""
    random = np.random.default_rng(number)
    count = 5 + number % 7 if positions is None else positions
    shape = (layers, 2, count, head_dim)
    return PackedPrefix(
        {
            "keys": random.integers(-127, 128, shape, dtype=np.int8),
            "values": random.integers(-127, 128, shape, dtype=np.int8),
            "key_scales": random.integers(0, 1 << 16, (layers, 2, head_dim), dtype=np.uint16),
            "value_scales": random.integers(0, 1 << 16, (layers, 2, count), dtype=np.uint16),
        },
        shape=(layers, 2, head_dim),
        positions=np.arange(count, dtype=np.int32) * 3,
        visual=np.arange(count) % 2 == 0,
        next_position=3 * count,
        grid=(count, 3),
    )


def _groups(random: np.random.Generator) -> tuple[LayerGroup, ...]:
    """Of two layers, and of one, with two heads of eight channels each."""
    groups = []
    for rank, channels in ((5, 32), (4, 16)):
        rows, _ = np.linalg.qr(random.normal(size=(channels, rank)))
        mean = random.normal(size=channels).astype(np.float32)
        groups.append(LayerGroup(mean, rows.T.astype(np.float16), *np.full((2, rank), 0.5, dtype=np.float32)))
    return tuple(groups)


BASIS = Basis(
    shared=np.random.default_rng(7).normal(size=(2, 3, 2, 2, 8)).astype(np.float32),
    tail=np.random.default_rng(6).normal(size=(2, 3, 2, 2, 8)).astype(np.float32),
    frequencies=10.0 ** -np.arange(4.0)[None],
    interleaved=False,
    scaling=1.0,
    layers_per_group=2,
    keys=_groups(np.random.default_rng(8)),
    values=_groups(np.random.default_rng(9)),
    limits=(1e6, 1e6),
    lost=0.01,
)
CODED_LINEAGE = replace(LINEAGE, storage=StorageSetting(Keep(), 3, 1.5, digest_basis(BASIS.to_bytes())))
"""Of a store that holds the pages of `coded_row`."""


def coded_prefix(number: int, *, positions: int | None = None, basis: Basis = BASIS) -> PackedPrefix:
    """A prefix of codes: after the shared positions every third of a page, then two more."""
    random = np.random.default_rng(number)
    count = 5 + number % 7 if positions is None else positions
    before, whole = basis.shared.shape[3], number % 2
    cells = 3 * (count - 2)
    kept = np.array([*range(before, before + cells, 3), before + cells, before + cells + 1], dtype=np.int32)
    return PackedPrefix(
        {
            "codes": random.integers(-9, 10, (basis.rank, count - 2), dtype=np.int8),
            "tail_codes": random.integers(-9, 10, (basis.rank, 2), dtype=np.int8),
            "rotary": np.tile(kept, (len(basis.frequencies), 1)),
            "whole": np.arange(whole, dtype=np.int32),
            "whole_vectors": random.normal(size=(2, 3, 2, whole, 8)).astype(np.float16),
        },
        shape=(3, 2, 8),
        positions=kept,
        visual=np.arange(count) < count - 2,
        next_position=number,
        grid=(1, cells),
        basis=basis,
        lost=0.25,
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


def coded_row(number: int, *, positions: int | None = None) -> PageRow:
    return PageRow(row(number).page, coded_prefix(number, positions=positions))


def assert_same(found: PackedPrefix, expected: PackedPrefix) -> None:
    assert set(found.arrays) == set(expected.arrays)
    for name, array in expected.arrays.items():
        np.testing.assert_array_equal(found.arrays[name], array, err_msg=name)
        assert found.arrays[name].dtype == array.dtype
    for name in ("positions", "visual"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), err_msg=name)
    for name in ("shape", "next_position", "grid", "lost"):
        assert getattr(found, name) == getattr(expected, name), name
    assert found.basis is expected.basis
