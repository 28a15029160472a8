"""Which positions are kept, what their numbers lose, and what a stored page stands for."""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from ridgerank.backbones.base import Backbone
from ridgerank.backbones.decoder import Prefix, PrefixBatch
from ridgerank.backbones.load import load_backbone
from ridgerank.errors import StoreError
from ridgerank.lineage import RULES, Keep
from ridgerank.store.codec import (
    CODE_MAX,
    StoredPrefixes,
    compress,
    encode_kept,
    encode_shared,
    even_indices,
    fit_basis,
    keep_positions,
    kept_positions,
    quantize,
)
from ridgerank.store.layout import Basis, PackedPrefix, pack, unpack
from tests.backbones.small_models import build
from tests.backbones.small_text_models import build_text

EXIT = 4
QUERY = "revenue in 2023"
rules = st.sampled_from(sorted(RULES))
sizes = st.integers(1, 144)


def draw_norms(size: int) -> NDArray[np.float64]:
    return np.random.default_rng(7).random(size)


@given(
    rule=rules,
    fraction=st.fractions(min_value=Fraction(1, 50), max_value=1, max_denominator=50),
    size=sizes,
    before=st.integers(0, 5),
    after=st.integers(0, 5),
)
def test_exactly_the_fraction_stays_and_every_instruction_position(
    rule: str, fraction: Fraction, size: int, before: int, after: int
) -> None:
    visual = np.concatenate([np.zeros(before, bool), np.ones(size, bool), np.zeros(after, bool)])
    kept = kept_positions(Keep(rule, fraction), visual, draw_norms(size))
    assert kept.dtype == np.int32
    assert (np.diff(kept) > 0).all()
    assert visual[kept].sum() == max(1, round(fraction * size))
    assert set(np.flatnonzero(~visual)) <= set(kept)
    assert kept.tolist() == kept_positions(Keep(rule, fraction), visual, draw_norms(size)).tolist()


@given(st.integers(1, 500), st.data())
def test_even_gaps_differ_by_at_most_one(total: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, total))
    chosen = even_indices(total, count)
    assert len(set(chosen.tolist())) == count
    assert 0 <= chosen[0] <= chosen[-1] < total
    assert np.ptp(np.diff(chosen)) <= 1 if count > 2 else True
    assert abs(int(chosen[0]) - (total - 1 - int(chosen[-1]))) <= 1


def test_value_norm_keeps_the_highest_and_breaks_ties_by_order() -> None:
    keep = Keep("value-norm", Fraction(1, 2))
    assert kept_positions(keep, np.ones(4, bool), np.array([1, 3, 1, 2])).tolist() == [1, 3]
    assert kept_positions(keep, np.ones(4, bool), np.array([1, 0, 1, 1])).tolist() == [0, 2]


def outlying(seed: int, size: float) -> Tensor:
    """Some key channels and some positions a hundred times larger than the rest."""
    x = torch.randn(3, 2, 40, 16, generator=torch.Generator().manual_seed(seed)) * size
    x[..., 3] *= 100
    x[:, :, 7] *= 100
    return x


@given(seed=st.integers(0, 999), exponent=st.integers(-30, 30))
def test_int8_error_is_at_most_half_a_step_of_a_127th_of_the_largest(seed: int, exponent: int) -> None:
    x = outlying(seed, 10.0**exponent)
    for dim in (2, 3):
        codes, scales = quantize(x, dim=dim)
        steps = scales.double().expand_as(x)
        error = (codes.double() * steps - x.double()).abs()
        assert (error <= steps * (0.5 + 1e-4)).all()
        assert codes.abs().max() <= CODE_MAX
        largest = x.abs().amax(dim=dim, keepdim=True)
        torch.testing.assert_close(scales.float() * CODE_MAX, largest, rtol=2**-7, atol=1e-37)


@pytest.fixture(scope="module")
def prefixes(small_backbone: Backbone) -> list[Prefix]:
    generator = np.random.default_rng(0)
    sizes = [(140, 168), (112, 84), (84, 168)]
    images = [Image.fromarray(generator.integers(0, 256, (h, w, 3), dtype=np.uint8)) for w, h in sizes]
    return small_backbone.encode(images, exit_layer=EXIT)


def fit(backbone: Backbone, prefixes: list[Prefix], keep: Keep, *, quality: float, group: int = 2) -> Basis:
    shared = encode_shared(backbone, EXIT)
    kept = [keep_positions(prefix, keep, shared.shape[3]) for prefix in prefixes]
    rotation = backbone.rotation(len(prefixes[0].rotary))
    return fit_basis(kept, quality=quality, rotation=rotation, shared=shared, layers_per_group=group)


def turned_back(keys: Tensor, rotary: Tensor, basis: Basis) -> NDArray[np.float64]:
    """Keys (layers, heads, positions, dim) before the rotary embedding, by its textbook formula."""
    angles = rotary.numpy().T @ basis.frequencies
    pairs = keys[..., : angles.shape[1]].double() + 1j * keys[..., angles.shape[1] :].double()
    turned = pairs.numpy() * np.exp(-1j * angles)
    return np.concatenate([turned.real, turned.imag], axis=-1)


def decompressed(page: PackedPrefix) -> Prefix:
    """What a stored page stands for, number by number from the documented format."""
    layers, heads, dim = page.shape
    rotary = torch.from_numpy(page.arrays.get("rotary", page.positions[None]))
    visual = np.concatenate([np.zeros(page.shared_count, dtype=np.bool_), page.visual])
    if page.basis is None:

        def floats(name: str) -> NDArray[np.float32]:
            return (page.arrays[name].astype(np.uint32) << 16).view(np.float32)

        keys = page.arrays["keys"].astype(np.float32) * floats("key_scales")[:, :, None]
        values = page.arrays["values"].astype(np.float32) * floats("value_scales")[..., None]
    else:
        codes, tail_codes = (page.arrays[name].astype(np.float64) for name in ("codes", "tail_codes"))
        start = 0
        parts: list[list[NDArray[np.float64]]] = [[], []]
        for number, group in enumerate(page.basis.groups):
            rank = len(group.rows)
            rows = group.rows.astype(np.float64)
            numbers = (codes[start : start + rank].T * group.steps) @ rows + group.mean
            ends = page.basis.tail[number % 2].transpose(2, 0, 1, 3).reshape(page.basis.tail.shape[3], -1)
            first = sum(part.shape[1] for part in parts[number % 2])
            ends = ends[:, first : first + numbers.shape[1]]
            ends = ends + (tail_codes[start : start + rank].T * group.tail_steps) @ rows
            parts[number % 2].append(np.concatenate([numbers, ends]))
            start += rank
        keys, values = (
            np.concatenate(part, axis=1).reshape(-1, layers, heads, dim).transpose(1, 2, 0, 3)
            for part in parts
        )
        whole = page.arrays["whole"]
        keys[:, :, whole], values[:, :, whole] = page.arrays["whole_vectors"]
        opposite = replace(page.basis, frequencies=-page.basis.frequencies)
        keys = turned_back(torch.from_numpy(keys), rotary, opposite)
        keys = np.concatenate([page.basis.shared[0], keys], axis=2)
        values = np.concatenate([page.basis.shared[1], values], axis=2)
    return Prefix(
        torch.from_numpy(keys).float(),
        torch.from_numpy(values).float(),
        torch.from_numpy(visual),
        page.grid,
        page.next_position,
        rotary,
    )


@pytest.mark.parametrize("quality", [None, 0.5, 4.0])
@pytest.mark.parametrize("keep", ["stride 1/3", "value-norm 1/3", "stride 1"])
def test_stored_pages_give_the_states_of_what_they_stand_for(
    small_backbone: Backbone, prefixes: list[Prefix], keep: str, quality: float | None
) -> None:
    rule = Keep.parse(keep)
    basis = None if quality is None else fit(small_backbone, prefixes, rule, quality=quality)
    packed = [unpack(pack(compress(prefix, rule, basis)), basis=basis) for prefix in prefixes]
    states = small_backbone.states([QUERY], StoredPrefixes(packed))
    expected = small_backbone.states([QUERY], PrefixBatch([decompressed(page) for page in packed]))
    # Products are taken in bfloat16 where a processor has units for it.
    assert ((states - expected).norm(dim=1) / expected.norm(dim=1)).max() < 0.02


@pytest.mark.parametrize("group", [1, 3, EXIT])
def test_every_coefficient_that_is_not_cut_is_within_half_a_step(
    small_backbone: Backbone, prefixes: list[Prefix], group: int
) -> None:
    basis = fit(small_backbone, prefixes, Keep(), quality=1.0, group=group)
    for prefix in prefixes:
        kept = keep_positions(prefix, Keep(), basis.shared.shape[3])
        page = encode_kept(kept, basis)
        coded = np.setdiff1d(np.arange(page.arrays["codes"].shape[1]), page.arrays["whole"])
        keys = turned_back(kept.keys, kept.rotary, basis)
        start = 0
        for number, one in enumerate(basis.groups):
            part = (keys, kept.values.numpy())[number % 2]
            flat = part.transpose(2, 0, 1, 3).reshape(part.shape[2], -1)
            first = number // 2 * group * part.shape[1] * part.shape[3]
            flat = flat[: page.arrays["codes"].shape[1]]
            exact = (flat[:, first : first + len(one.mean)] - one.mean) @ one.rows.T.astype(np.float64)
            codes = page.arrays["codes"][start : start + len(one.rows)].T
            error = np.abs(codes * one.steps - exact)[coded]
            assert (error <= one.steps * (0.5 + 1e-2)).all()
            start += len(one.rows)
        assert 0 <= page.lost <= basis.lost


def test_more_quality_takes_more_bytes_and_stands_for_more(
    small_backbone: Backbone, prefixes: list[Prefix]
) -> None:
    errors, sizes = [], []
    for quality in (0.25, 1.0, 4.0):
        basis = fit(small_backbone, prefixes, Keep(), quality=quality)
        pages = [compress(prefix, Keep(), basis) for prefix in prefixes]
        sizes.append(sum(len(pack(page)) for page in pages))
        kept = keep_positions(prefixes[0], Keep())
        errors.append(float((decompressed(pages[0]).values - kept.values).norm()))
    assert sizes == sorted(sizes)
    assert errors == sorted(errors, reverse=True)


def test_a_position_far_from_all_others_is_stored_whole(
    small_backbone: Backbone, prefixes: list[Prefix]
) -> None:
    basis = fit(small_backbone, prefixes, Keep.parse("stride 1"), quality=1.0)
    before = basis.shared.shape[3]
    odd = replace(prefixes[0], values=prefixes[0].values.clone())
    odd.values[:, :, before + 5] *= 50
    page = compress(odd, Keep.parse("stride 1"), basis)
    assert 5 in page.arrays["whole"]
    restored = decompressed(page)
    for part, exact in ((restored.keys, odd.keys), (restored.values, odd.values)):
        torch.testing.assert_close(part[:, :, before + 5], exact[:, :, before + 5], rtol=2e-3, atol=2e-3)


def test_a_page_unlike_the_sampled_ones_says_what_it_loses(
    small_backbone: Backbone, prefixes: list[Prefix]
) -> None:
    basis = fit(small_backbone, prefixes, Keep(), quality=0.2)
    groups = [replace(group, rows=group.rows[:1], steps=group.steps[:1]) for group in basis.keys]
    cut = replace(basis, keys=tuple(groups))
    assert compress(prefixes[0], Keep(), cut).lost > basis.lost


@pytest.mark.parametrize("rule", sorted(RULES))
def test_a_page_without_visual_positions_keeps_all_others(rule: str) -> None:
    keys, values = torch.randn(2, 2, 1, 5, 8, generator=torch.Generator().manual_seed(0))
    rotary = torch.arange(5)[None]
    blank = Prefix(keys, values, torch.zeros(5, dtype=torch.bool), (0, 0), 5, rotary)
    assert compress(blank, Keep.parse(f"{rule} 1/3")).positions.tolist() == [0, 1, 2, 3, 4]


def test_pages_of_two_stores_in_one_batch_are_refused(
    small_backbone: Backbone, prefixes: list[Prefix]
) -> None:
    bases = [fit(small_backbone, prefixes, Keep(), quality=quality) for quality in (1.0, 2.0)]
    for first, second in ((None, bases[0]), (bases[0], bases[1])):
        with pytest.raises(StoreError, match="several stores"):
            StoredPrefixes([compress(prefixes[0], Keep(), basis) for basis in (first, second)])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("coded", [False, True])
def test_filling_writes_some_or_all_pages_in_any_dtype_and_nothing_beyond_them(
    small_backbone: Backbone, prefixes: list[Prefix], coded: bool, dtype: torch.dtype
) -> None:
    basis = fit(small_backbone, prefixes, Keep(), quality=2.0) if coded else None
    packed = [compress(prefix, Keep(), basis) for prefix in prefixes]
    batch = StoredPrefixes(packed)
    longest, room = int(batch.lengths.max()), 9
    shape = (len(packed), packed[0].shape[1], longest + room, packed[0].shape[2])
    memory = torch.full((2, *shape), 7.0, dtype=dtype)
    batch.fill(2, *memory[..., :longest, :])
    for row, page in enumerate(packed):
        expected, length = decompressed(page), page.shared_count + len(page.positions)
        for part, exact in zip(memory[:, row], (expected.keys, expected.values), strict=True):
            torch.testing.assert_close(part[:, :length].float(), exact[2], rtol=2e-2, atol=3e-2)
        alone = torch.empty(2, 1, *memory[0, 0, :, :longest].shape, dtype=dtype)
        batch.fill(2, *alone, start=row)
        torch.testing.assert_close(alone[:, 0], memory[:, row, :, :longest], rtol=1e-2, atol=1e-2)
    assert (memory[..., longest:, :] == 7).all()


@pytest.mark.parametrize(
    ("build_model", "family"),
    [
        (build, "qwen2_5_vl"),
        (build, "qwen3_vl"),
        (build, "glm4v"),
        (build, "idefics3"),
        (build, "smolvlm"),
        (build_text, "llama"),
    ],
)
def test_keys_of_every_family_are_turned_back_and_forth_and_start_with_the_shared_positions(
    build_model: Callable[..., Any], family: str, tmp_path: Path
) -> None:
    backbone = load_backbone(build_model(family, tmp_path).folder, device="cpu")
    random = np.random.default_rng(0)
    images = [
        Image.fromarray(random.integers(0, 256, (height, width, 3), dtype=np.uint8))
        for width, height in ((64, 64), (300, 200))
    ]
    contents = ["one page", "another page"] if backbone.reads_text else images
    prefixes = [backbone.encode([content], exit_layer=2)[0] for content in contents]
    shared = encode_shared(backbone, 2)
    count = shared.shape[3]
    rotation = backbone.rotation(len(prefixes[0].rotary))
    kept = [keep_positions(prefix, Keep.parse("stride 1"), count) for prefix in prefixes]
    basis = fit_basis(kept, quality=60.0, rotation=rotation, shared=shared, layers_per_group=2)
    for prefix, page in zip(prefixes, kept, strict=True):
        for part, once in zip((prefix.keys, prefix.values), shared, strict=True):
            torch.testing.assert_close(part[:, :, :count], torch.from_numpy(once))
        packed = encode_kept(page, basis)
        assert packed.total == len(prefix.visual)
        assert int(packed.positions[0]) >= count
        batch = StoredPrefixes([packed])
        found = torch.empty(2, 1, prefix.keys.shape[1], prefix.count, prefix.keys.shape[3])
        batch.fill(1, *found)
        for part, exact in zip(found[:, 0], (prefix.keys[1], prefix.values[1]), strict=True):
            assert float((part - exact).norm() / exact.norm()) < 0.05
