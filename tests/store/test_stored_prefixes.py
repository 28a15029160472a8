from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from ridgerank.backbones.base import Backbone
from ridgerank.backbones.prefix import Prefix, PrefixBatch
from ridgerank.errors import StoreError
from ridgerank.store.codec import SCALE_DTYPE, compress, encode_shared
from ridgerank.store.layout import PackedPrefix, pack, unpack
from ridgerank.store.reading import StoredPrefixes
from ridgerank.store.storage_setting import PAPER_NUMBERS, Keep, NumberFormat

EXIT = 4


@pytest.fixture(scope="module")
def images() -> list[Image.Image]:
    generator = np.random.default_rng(0)
    sizes = [(140, 168), (112, 84), (84, 168)]
    return [Image.fromarray(generator.integers(0, 256, (h, w, 3), dtype=np.uint8)) for w, h in sizes]


@pytest.fixture(scope="module")
def prefixes(small_backbone: Backbone, images: list[Image.Image]) -> list[Prefix]:
    return small_backbone.encode(images, exit_layer=EXIT)


def unpacked(page: PackedPrefix) -> Prefix:
    """What a page of packed codes stands for, position by position from the documented format."""
    assert page.key_minima is not None
    assert page.value_minima is not None
    count, group = len(page.positions), page.numbers.group or 1 << 20

    def codes(packed: NDArray[Any], bits: int) -> NDArray[np.float32]:
        rows = []
        for p in range(count):
            if bits == 3:
                low = packed[:, :, p // 4] >> 2 * (p % 4) & 3
                high = packed[:, :, -(-count // 4) + p // 8] >> p % 8 & 1
                rows.append(low + 4 * high)
            else:
                shift = bits * (p % (8 // bits))
                rows.append(packed[:, :, p * bits // 8] >> shift & (1 << bits) - 1)
        return np.stack(rows, axis=2).astype(np.float32)

    def floats(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
        return (bits.astype(np.uint32) << 16).view(np.float32)

    of_position, of_channel = np.arange(count) // group, np.arange(page.keys.shape[3]) // group
    keys = codes(page.keys, page.numbers.key_bits) * floats(page.key_scales)[:, :, of_position]
    keys += floats(page.key_minima)[:, :, of_position]
    values = codes(page.values, page.numbers.value_bits) * floats(page.value_scales)[..., of_channel]
    values += floats(page.value_minima)[..., of_channel]
    before = np.zeros(page.shared_count, dtype=np.bool_)
    if page.shared is not None:
        keys = np.concatenate([page.shared.keys, keys], axis=2)
        values = np.concatenate([page.shared.values, values], axis=2)
    return Prefix(
        keys=torch.from_numpy(keys),
        values=torch.from_numpy(values),
        visual=torch.from_numpy(np.concatenate([before, page.visual])),
        grid=page.grid,
        next_position=page.next_position,
    )


def decompressed(page: PackedPrefix) -> Prefix:
    """What a stored page stands for, computed in plain numpy."""

    def scales(bits: np.ndarray[tuple[int, ...], np.dtype[np.uint16]]) -> torch.Tensor:
        return torch.from_numpy(bits.copy()).view(SCALE_DTYPE).float()

    return Prefix(
        keys=torch.from_numpy(page.keys.astype(np.float32)) * scales(page.key_scales)[:, :, None, :],
        values=torch.from_numpy(page.values.astype(np.float32)) * scales(page.value_scales)[..., None],
        visual=torch.from_numpy(page.visual),
        grid=page.grid,
        next_position=page.next_position,
    )


@pytest.mark.parametrize("keep", ["stride 1", "stride 1/3", "value-norm 1/3"])
def test_stored_pages_give_the_states_of_what_they_stand_for(
    small_backbone: Backbone, images: list[Image.Image], prefixes: list[Prefix], keep: str
) -> None:
    packed = [
        unpack(pack(compress(prefix, Keep.parse(keep))))
        for prefix, image in zip(prefixes, images, strict=True)
    ]
    states = small_backbone.states(["revenue in 2023"], StoredPrefixes(packed))
    expected = small_backbone.states(
        ["revenue in 2023"], PrefixBatch([decompressed(page) for page in packed])
    )
    torch.testing.assert_close(states, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("bits", ["4", "3", "2", "8/4", "4/2 group 8", "3 group 32"])
@pytest.mark.parametrize("keep", ["value-norm 1/3", "stride 1"])
def test_packed_pages_give_the_states_of_what_they_stand_for(
    small_backbone: Backbone, images: list[Image.Image], prefixes: list[Prefix], keep: str, bits: str
) -> None:
    numbers = NumberFormat.parse(bits)
    shared = encode_shared(small_backbone, numbers, exit_layer=EXIT)
    packed = [
        unpack(pack(compress(prefix, Keep.parse(keep), numbers, shared)), shared=shared)
        for prefix, image in zip(prefixes, images, strict=True)
    ]
    states = small_backbone.states(["revenue in 2023"], StoredPrefixes(packed))
    pages = [unpacked(page) for page in packed]
    expected = small_backbone.states(["revenue in 2023"], PrefixBatch(pages))
    torch.testing.assert_close(states, expected, rtol=1e-4, atol=1e-4)


def test_the_positions_before_the_page_are_the_same_for_every_page(
    small_backbone: Backbone, prefixes: list[Prefix]
) -> None:
    shared = encode_shared(small_backbone, NumberFormat(4, 4), exit_layer=EXIT)
    assert shared is not None
    assert shared.count == int(prefixes[0].visual.nonzero()[0])
    for prefix in prefixes:
        for part, once in ((prefix.keys, shared.keys), (prefix.values, shared.values)):
            torch.testing.assert_close(part[:, :, : shared.count], torch.from_numpy(once))


def test_the_paper_stores_every_page_with_the_positions_before_it(small_backbone: Backbone) -> None:
    assert encode_shared(small_backbone, PAPER_NUMBERS, exit_layer=EXIT) is None


def test_pages_of_two_stores_in_one_batch_are_refused(
    images: list[Image.Image], prefixes: list[Prefix]
) -> None:
    pages = [compress(prefixes[0], Keep(), NumberFormat.parse(bits)) for bits in ("8", "4")]
    with pytest.raises(StoreError, match="several stores"):
        StoredPrefixes(pages)


def test_with_every_position_kept_int8_moves_a_state_by_little(
    small_backbone: Backbone, images: list[Image.Image], prefixes: list[Prefix]
) -> None:
    packed = [compress(p, Keep.parse("stride 1")) for p in prefixes]
    states = small_backbone.states(["revenue"], StoredPrefixes(packed))
    exact = small_backbone.states(["revenue"], PrefixBatch(prefixes))
    assert ((states - exact).norm(dim=1) / exact.norm(dim=1)).max() < 0.02


def test_instruction_positions_stay_and_a_third_of_the_visual_ones(
    images: list[Image.Image], prefixes: list[Prefix]
) -> None:
    for prefix in prefixes:
        packed = compress(prefix, Keep())
        visual = int(prefix.visual.sum())
        assert int(packed.visual.sum()) == round(visual / 3)
        assert int((~packed.visual).sum()) == len(prefix.visual) - visual
        assert packed.next_position == prefix.next_position


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_filling_writes_memory_of_any_dtype_and_stride_and_nothing_beyond_it(
    images: list[Image.Image], prefixes: list[Prefix], dtype: torch.dtype
) -> None:
    packed = [compress(p, Keep()) for p in prefixes]
    batch = StoredPrefixes(packed)
    longest, room = int(batch.lengths.max()), 9
    shape = (len(packed), packed[0].keys.shape[1], longest + room, packed[0].keys.shape[3])
    keys, values = torch.full(shape, 7.0, dtype=dtype), torch.full(shape, 7.0, dtype=dtype)
    batch.fill(2, keys[:, :, :longest], values[:, :, :longest])
    for row, page in enumerate(packed):
        expected = decompressed(page)
        length = len(page.positions)
        torch.testing.assert_close(keys[row, :, :length].float(), expected.keys[2], rtol=2e-2, atol=1e-3)
        torch.testing.assert_close(values[row, :, :length].float(), expected.values[2], rtol=2e-2, atol=1e-3)
        assert not keys[row, :, length:longest].any()
    assert (keys[:, :, longest:] == 7).all()
    assert (values[:, :, longest:] == 7).all()


@pytest.mark.parametrize("bits", ["8", "4/2", "3/2", "3 group 16"])
def test_some_of_the_pages_are_filled_as_in_the_whole_batch(
    images: list[Image.Image], prefixes: list[Prefix], bits: str
) -> None:
    numbers = NumberFormat.parse(bits)
    packed = [compress(p, Keep(), numbers) for p in prefixes]
    batch = StoredPrefixes(packed)
    shape = (len(packed), packed[0].keys.shape[1], int(batch.lengths.max()), packed[0].keys.shape[3])
    keys, values = torch.empty(shape), torch.empty(shape)
    batch.fill(1, keys, values)
    some_keys, some_values = torch.empty(1, *shape[1:]), torch.empty(1, *shape[1:])
    for start in range(len(packed)):
        batch.fill(1, some_keys, some_values, start=start)
        assert torch.equal(some_keys[0], keys[start])
        assert torch.equal(some_values[0], values[start])
