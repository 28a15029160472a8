"""Which positions are kept, what their numbers lose, and what a stored page stands for."""

from collections.abc import Callable
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
from ridgerank.lineage import PAPER_NUMBERS, RULES, VALUE_WIDTHS, WIDTHS, Keep, NumberFormat, StorageSetting
from ridgerank.store.codec import (
    CODE_MAX,
    StoredPrefixes,
    compress,
    encode_shared,
    even_indices,
    kept_positions,
    pack_codes,
    quantize_groups,
    quantize_keys,
    quantize_values,
    restore_groups,
    unpack_codes,
)
from ridgerank.store.layout import PackedPrefix, pack, packed_rows, unpack
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
    for norms in (None, np.ones(3)):
        with pytest.raises(StoreError, match="'value-norm' needs the norm of every value vector"):
            kept_positions(keep, np.ones(4, bool), norms)


def restored(codes: Tensor, scales: Tensor) -> Tensor:
    return codes.float() * scales.float()


def outlying(seed: int, size: float) -> Tensor:
    """Some key channels and some positions a hundred times larger than the rest."""
    x = torch.randn(3, 2, 40, 16, generator=torch.Generator().manual_seed(seed)) * size
    x[..., 3] *= 100
    x[:, :, 7] *= 100
    return x


@given(seed=st.integers(0, 999), exponent=st.integers(-30, 30))
def test_int8_error_is_at_most_half_a_step_of_a_127th_of_the_largest(seed: int, exponent: int) -> None:
    x = outlying(seed, 10.0**exponent)
    for quantize, dim in ((quantize_keys, 2), (quantize_values, 3)):
        codes, scales = quantize(x)
        steps = scales.double().expand_as(x)
        error = (codes.double() * steps - x.double()).abs()
        assert (error <= steps * (0.5 + 1e-4)).all()
        assert codes.abs().max() <= CODE_MAX
        largest = x.abs().amax(dim=dim, keepdim=True)
        torch.testing.assert_close(scales.float() * CODE_MAX, largest, rtol=2**-7, atol=1e-37)


def test_what_int8_holds_exactly_survives_and_quantizing_twice_changes_nothing() -> None:
    integers = torch.arange(-127.0, 128.0).view(1, 1, 1, -1)
    once = restored(*quantize_values(outlying(1, 1.0)))
    for x in (integers, torch.zeros(1, 1, 4, 8), once):
        assert torch.equal(restored(*quantize_values(x)), x)


@given(
    seed=st.integers(0, 999),
    exponent=st.integers(-25, 25),
    bits=st.sampled_from(WIDTHS),
    dim=st.sampled_from([-2, -1]),
    group=st.sampled_from([None, 8, 9, 32, 64]),
    offset=st.sampled_from([0.0, 1.0, -300.0]),
)
def test_with_any_width_and_group_the_error_is_at_most_half_a_step(
    seed: int, exponent: int, bits: int, dim: int, group: int | None, offset: float
) -> None:
    x = outlying(seed, 10.0**exponent) + offset * 10.0**exponent
    quantized = quantize_groups(x, bits=bits, dim=dim, group=group)
    assert int(quantized.codes.max()) < 1 << bits
    numbers = quantized.codes.float()
    restore_groups(numbers, quantized.steps.float(), quantized.minima.float(), dim=dim, group=group)
    size = x.shape[dim]
    steps = quantized.steps.double().repeat_interleave(group or size, dim).narrow(dim, 0, size)
    error = (numbers.double() - x.double()).abs()
    # Minimum + code × step is summed in float32, which rounds in proportion to the largest term.
    rounding = 1e-6 * x.abs().double().amax(dim, keepdim=True)
    assert (error <= steps / 2 + rounding).all()


@given(seed=st.integers(0, 999), exponent=st.integers(-25, 25), group=st.sampled_from([None, 8, 9]))
def test_one_bit_has_the_means_of_two_halves_as_levels_and_takes_the_nearer(
    seed: int, exponent: int, group: int | None
) -> None:
    x = outlying(seed, 10.0**exponent)
    quantized = quantize_groups(x, bits=1, dim=-1, group=group)
    size = group or x.shape[-1]
    for number, part in enumerate(torch.split(x, size, dim=-1)):
        above = part > part.mean(dim=-1, keepdim=True)
        low = quantized.minima[..., number : number + 1].double()
        high = low + quantized.steps[..., number : number + 1].double()
        largest = part.abs().amax(-1, keepdim=True).double()
        for level, members in ((low, ~above), (high, above)):
            total = torch.where(members, part.double(), 0).sum(-1, keepdim=True)
            # bfloat16 rounds by 2⁻⁸: the minimum, and a step of up to twice the largest number.
            assert ((level - total / members.sum(-1, keepdim=True)).abs() <= 3 * 2**-8 * largest).all()
        codes = quantized.codes[..., number * size : (number + 1) * size].bool()
        nearer = (part - high).abs() < (part - low).abs()
        clear = ((part - high).abs() - (part - low).abs()).abs() > 1e-5 * largest
        assert torch.equal(codes[clear], nearer[clear])


@pytest.mark.parametrize("bits", [2, 1])
@pytest.mark.parametrize("value", [0.0, 1.5, -3.0])
def test_numbers_that_are_all_equal_survive(value: float, bits: int) -> None:
    quantized = quantize_groups(torch.full((1, 1, 4, 8), value), bits=bits, dim=-2, group=None)
    numbers = quantized.codes.float()
    restore_groups(numbers, quantized.steps.float(), quantized.minima.float(), dim=-2, group=None)
    assert (numbers == value).all()


@given(
    bits=st.sampled_from(VALUE_WIDTHS),
    counts=st.lists(st.integers(1, 40), min_size=1, max_size=4),
    channels=st.integers(1, 9),
    seed=st.integers(0, 99),
)
def test_codes_of_pages_of_any_length_come_back_from_their_bytes(
    bits: int, counts: list[int], channels: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    pages = [
        torch.randint(0, 1 << bits, (2, count, channels), generator=generator, dtype=torch.uint8)
        for count in counts
    ]
    packed = [pack_codes(codes, bits) for codes in pages]
    for page, count in zip(packed, counts, strict=True):
        assert page.shape[1] == packed_rows(count, bits)
        assert 0 <= 8 * page.shape[1] - count * bits < 16
    memory = torch.full((len(pages), 2, max(counts) + 4, channels), 7.0, dtype=torch.bfloat16)
    unpack_codes(packed, counts, bits, memory[:, :, :-4])
    for row, (codes, count) in enumerate(zip(pages, counts, strict=True)):
        assert torch.equal(memory[row, :, :count], codes.bfloat16())
        assert not memory[row, :, count:-4].any()
    assert (memory[:, :, -4:] == 7).all()


@pytest.fixture(scope="module")
def prefixes(small_backbone: Backbone) -> list[Prefix]:
    generator = np.random.default_rng(0)
    sizes = [(140, 168), (112, 84), (84, 168)]
    images = [Image.fromarray(generator.integers(0, 256, (h, w, 3), dtype=np.uint8)) for w, h in sizes]
    return small_backbone.encode(images, exit_layer=EXIT)


def decompressed(page: PackedPrefix) -> Prefix:
    """What a stored page stands for, position by position from the documented format."""

    def codes(packed: NDArray[Any], bits: int) -> NDArray[np.float32]:
        rows = []
        for p in range(len(page.positions)):
            if bits == 3:
                low = packed[:, :, p // 4] >> 2 * (p % 4) & 3
                high = packed[:, :, -(-len(page.positions) // 4) + p // 8] >> p % 8 & 1
                rows.append(low + 4 * high)
            else:
                shift = bits * (p % (8 // bits))
                rows.append(packed[:, :, p * bits // 8] >> shift & (1 << bits) - 1)
        return np.stack(rows, axis=2).astype(np.float32)

    def floats(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
        return (bits.astype(np.uint32) << 16).view(np.float32)

    if page.key_minima is None or page.value_minima is None:
        keys = page.keys.astype(np.float32) * floats(page.key_scales)[:, :, None]
        values = page.values.astype(np.float32) * floats(page.value_scales)[..., None]
    else:
        group = page.numbers.group or 1 << 20
        of_position = np.arange(len(page.positions)) // group
        of_channel = np.arange(page.keys.shape[3]) // group
        keys = codes(page.keys, page.numbers.key_bits) * floats(page.key_scales)[:, :, of_position]
        keys += floats(page.key_minima)[:, :, of_position]
        values = codes(page.values, page.numbers.value_bits) * floats(page.value_scales)[..., of_channel]
        values += floats(page.value_minima)[..., of_channel]
    if page.shared is not None:
        keys = np.concatenate([page.shared[0], keys], axis=2)
        values = np.concatenate([page.shared[1], values], axis=2)
    visual = np.concatenate([np.zeros(page.shared_count, dtype=np.bool_), page.visual])
    tensors = [torch.from_numpy(array) for array in (keys, values, visual)]
    return Prefix(tensors[0], tensors[1], tensors[2], page.grid, page.next_position)


@pytest.mark.parametrize("bits", ["8", "4", "3", "2", "8/4", "4/1", "4/2 group 8", "3 group 32"])
@pytest.mark.parametrize("keep", ["stride 1/3", "value-norm 1/3", "stride 1"])
def test_stored_pages_give_the_states_of_what_they_stand_for(
    small_backbone: Backbone, prefixes: list[Prefix], keep: str, bits: str
) -> None:
    storage = StorageSetting(Keep.parse(keep), NumberFormat.parse(bits), EXIT)
    shared = encode_shared(small_backbone, storage)
    packed = [
        unpack(pack(compress(prefix, storage.keep, storage.numbers, shared)), shared=shared)
        for prefix in prefixes
    ]
    states = small_backbone.states([QUERY], StoredPrefixes(packed))
    expected = small_backbone.states([QUERY], PrefixBatch([decompressed(page) for page in packed]))
    torch.testing.assert_close(states, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("rule", sorted(RULES))
def test_a_page_without_visual_positions_keeps_all_others(rule: str) -> None:
    keys, values = torch.randn(2, 2, 1, 5, 8, generator=torch.Generator().manual_seed(0))
    blank = Prefix(keys, values, torch.zeros(5, dtype=torch.bool), (0, 0), 5)
    assert compress(blank, Keep.parse(f"{rule} 1/3")).positions.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("bits", ["8", "4 group 32", "4/2 group 16"])
@pytest.mark.parametrize("keep", ["stride 1/3", "value-norm 1/2"])
def test_a_page_encoded_deeper_is_stored_as_if_encoded_for_its_layers(
    small_backbone: Backbone, keep: str, bits: str
) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (140, 112, 3), dtype=np.uint8)
    image = Image.fromarray(pixels)
    deep, shallow = (small_backbone.encode([image], exit_layer=layers)[0] for layers in (EXIT, 2))
    storage = StorageSetting(Keep.parse(keep), NumberFormat.parse(bits), 2)
    shared = encode_shared(small_backbone, storage)
    stored, expected = (
        pack(compress(prefix, storage.keep, storage.numbers, shared))
        for prefix in (deep.layers(0, 2), shallow)
    )
    np.testing.assert_array_equal(stored, expected)


def test_pages_of_two_stores_in_one_batch_are_refused(prefixes: list[Prefix]) -> None:
    pages = [compress(prefixes[0], Keep(), NumberFormat.parse(bits)) for bits in ("8", "4")]
    with pytest.raises(StoreError, match="several stores"):
        StoredPrefixes(pages)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("bits", ["8", "4/2", "3/2", "3 group 16"])
def test_filling_writes_some_or_all_pages_in_any_dtype_and_nothing_beyond_them(
    prefixes: list[Prefix], bits: str, dtype: torch.dtype
) -> None:
    packed = [compress(prefix, Keep(), NumberFormat.parse(bits)) for prefix in prefixes]
    batch = StoredPrefixes(packed)
    longest, room = int(batch.lengths.max()), 9
    shape = (len(packed), packed[0].keys.shape[1], longest + room, packed[0].keys.shape[3])
    memory = torch.full((2, *shape), 7.0, dtype=dtype)
    batch.fill(2, *memory[..., :longest, :])
    for row, page in enumerate(packed):
        expected, length = decompressed(page), len(page.positions)
        for part, exact in zip(memory[:, row], (expected.keys, expected.values), strict=True):
            torch.testing.assert_close(part[:, :length].float(), exact[2], rtol=2e-2, atol=2e-2)
        alone = torch.empty(2, 1, *memory[0, 0, :, :longest].shape, dtype=dtype)
        batch.fill(2, *alone, start=row)
        assert torch.equal(alone[:, 0], memory[:, row, :, :longest])
    assert (memory[..., longest:, :] == 7).all()


@pytest.mark.parametrize(
    ("build_model", "family"),
    [(build, "glm4v"), (build, "idefics3"), (build, "smolvlm"), (build_text, "llama")],
)
def test_pages_of_every_family_start_with_the_shared_positions(
    build_model: Callable[..., Any], family: str, tmp_path: Path
) -> None:
    backbone = load_backbone(build_model(family, tmp_path).folder, device="cpu")
    storage = StorageSetting(Keep(), NumberFormat(4, 4), 2)
    assert encode_shared(backbone, StorageSetting(Keep(), PAPER_NUMBERS, 2)) is None
    shared = encode_shared(backbone, storage)
    assert shared is not None
    count = shared.shape[3]
    random = np.random.default_rng(0)
    for width, height in ((64, 64), (300, 200)):
        image = Image.fromarray(random.integers(0, 256, (height, width, 3), dtype=np.uint8))
        [prefix] = backbone.encode([f"page {width}" if backbone.reads_text else image], exit_layer=2)
        for part, once in zip((prefix.keys, prefix.values), shared, strict=True):
            torch.testing.assert_close(part[:, :, :count], torch.from_numpy(once))
        packed = compress(prefix, storage.keep, storage.numbers, shared)
        assert packed.total == len(prefix.visual)
        assert int(packed.positions[0]) >= count
