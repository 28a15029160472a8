"""From the prefix the model computed to the one that is stored, and back: fewer positions, fewer bits.

The paper's int8 is symmetric, one bfloat16 scale per key channel and one per value position. Every other
number is minimum + code × step, and groups of numbers may share these instead of a whole channel or position.
One bit is different: the smallest and largest number would stand for none of those between them, so its two
levels are the means of the numbers above the mean and of the others.

A byte holds one channel of neighbouring positions. Position p of two-bit codes lies in row p // 4, shifted
by 2 (p mod 4), so one shift by (0, 2, 4, 6) unpacks the rows of all pages, whatever their lengths, as
integers of 64 bits. Three bits are the low two bits of each code, then its high bit, eight to a byte.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (its usual name)

from ridgerank.backbones.base import Backbone
from ridgerank.backbones.decoder import Prefix, PrefixBatch
from ridgerank.errors import StoreError
from ridgerank.lineage import PAPER_NUMBERS, Keep, NumberFormat, StorageSetting
from ridgerank.store.layout import PackedPrefix, SharedPositions

CODE_MAX = 127
SCALE_DTYPE = torch.bfloat16


def quantize_keys(keys: Tensor) -> tuple[Tensor, Tensor]:
    """Codes (layers, kv_heads, positions, head_dim) and scales (layers, kv_heads, 1, head_dim)."""
    return _quantize(keys, dim=-2)


def quantize_values(values: Tensor) -> tuple[Tensor, Tensor]:
    """Codes (layers, kv_heads, positions, head_dim) and scales (layers, kv_heads, positions, 1)."""
    return _quantize(values, dim=-1)


def _quantize(x: Tensor, *, dim: int) -> tuple[Tensor, Tensor]:
    """Round x / s to integers in [−127, 127], s = max |x| / 127 along `dim`, rounded to `SCALE_DTYPE`.

    A scale rounded down by 2⁻⁹ leaves |x / s| below 127.25, which still rounds to 127: the error is at most
    half a step everywhere.
    """
    x = x.float()
    scales = (x.abs().amax(dim=dim, keepdim=True) / CODE_MAX).to(SCALE_DTYPE)
    steps = scales.float()
    codes = torch.where(steps > 0, x / steps, 0.0).round_().clamp_(-CODE_MAX, CODE_MAX)
    return codes.to(torch.int8), scales


class GroupCodes(NamedTuple):
    """Numbers as minimum + code × step, in groups along one dimension."""

    codes: Tensor
    """uint8, of the shape of the numbers."""
    steps: Tensor
    """bfloat16, with the number of groups in place of the grouped dimension."""
    minima: Tensor
    """bfloat16, of the shape of `steps`."""


def quantize_groups(x: Tensor, *, bits: int, dim: int, group: int | None) -> GroupCodes:
    """Round (x − minimum) / step to integers in [0, 2ᵇ − 1], in groups of `group` along `dim`; None is one.

    The minimum is rounded down and the step up, so that the range of the codes covers every number and the
    error is at most half a step everywhere. The two levels of one bit cover no range: there it may be more.
    """
    x = x.float()
    size = x.shape[dim]
    parts = [
        _quantize_group(x.narrow(dim, start, min(group or size, size - start)), bits, dim)
        for start in range(0, size, group or max(size, 1))
    ]
    return GroupCodes(*(torch.cat(each, dim=dim) for each in zip(*parts, strict=True)))


def restore_groups(x: Tensor, steps: Tensor, minima: Tensor, *, dim: int, group: int | None) -> None:
    """Turn codes into numbers, in place: minimum + code × step, with `steps` as `quantize_groups` gives them.

    `dim` is counted from the end.
    """
    if group is None:
        _restore(x, steps, minima)
        return
    size = x.shape[dim]
    whole = size // group
    if whole:
        part = x.narrow(dim, 0, whole * group)
        grouped: Tensor = part.unflatten(dim, (whole, group))  # type: ignore[no-untyped-call]
        minimum, step = (scale.narrow(dim, 0, whole).unsqueeze(dim) for scale in (minima, steps))
        _restore(grouped, step, minimum)
    if size > whole * group:
        last = x.narrow(dim, whole * group, size - whole * group)
        minimum, step = (scale.narrow(dim, whole, 1) for scale in (minima, steps))
        _restore(last, step, minimum)


def _restore(x: Tensor, steps: Tensor, minima: Tensor) -> None:
    if steps.shape[-1] == 1:  # one step for a whole row: the fused operation takes four times as long
        x.mul_(steps).add_(minima)
    else:
        torch.addcmul(minima, x, steps, out=x)


def _quantize_group(x: Tensor, bits: int, dim: int) -> GroupCodes:
    if bits == 1:
        return _quantize_to_two_levels(x, dim)
    largest = (1 << bits) - 1
    minima = _round_down(x.amin(dim=dim, keepdim=True))
    steps = -_round_down((minima.float() - x.amax(dim=dim, keepdim=True)) / largest).float()
    codes = torch.where(steps > 0, (x - minima.float()) / steps, 0.0).round_().clamp_(0, largest)
    return GroupCodes(codes.to(torch.uint8), steps.to(SCALE_DTYPE), minima)


def _quantize_to_two_levels(x: Tensor, dim: int) -> GroupCodes:
    """Each number as the nearer of two: the mean of those above the group's mean, and that of the others."""
    above = x > x.mean(dim=dim, keepdim=True)
    low, high = (
        torch.where(members, x, 0.0).sum(dim=dim, keepdim=True)
        / members.sum(dim=dim, keepdim=True).clamp_min(1)
        for members in (~above, above)
    )
    high = torch.where(above.any(dim=dim, keepdim=True), high, low)
    minima, steps = low.to(SCALE_DTYPE), (high - low).to(SCALE_DTYPE)
    codes = x > minima.float() + steps.float() / 2
    return GroupCodes(codes.to(torch.uint8), steps, minima)


def _round_down(x: Tensor) -> Tensor:
    """The largest `SCALE_DTYPE` numbers that are not above x."""
    bits = x.contiguous().view(torch.int32)
    # Dropping the low half of a float32's bits rounds towards zero, which is up for negative numbers.
    bits = torch.where(x < 0, bits + 0xFFFF, bits) & ~0xFFFF
    return bits.view(torch.float32).to(SCALE_DTYPE)


def pack_codes(codes: Tensor, bits: int) -> Tensor:
    """(…, positions, channels) uint8 codes below 2ᵇ as (…, `packed_rows`, channels) bytes."""
    if bits == 8:
        return codes
    if bits == 3:
        return torch.cat([_pack_plane(codes & 3, 2), _pack_plane(codes >> 2, 1)], dim=-2)
    return _pack_plane(codes, bits)


def unpack_codes(pages: Sequence[Tensor], counts: Sequence[int], bits: int, out: Tensor) -> None:
    """Write the codes of pages, packed as (heads, rows, channels) each, into `out` as numbers.

    `counts` are the positions of each page, `out` is (pages, heads, longest, channels). Codes behind the end
    of a shorter page are zeros.
    """
    longest = out.shape[-2]
    if bits == 8:
        copy_padded(pages, out)
        return
    if bits == 3:
        low, high = _stack_planes(pages, counts, longest)
        words = _unpack_plane(low, 2)
        words.add_(_unpack_plane(high, 1)[..., : words.shape[-2], :], alpha=4)
    else:
        words = _unpack_plane(stack_padded(pages, -(-longest * bits // 8)), bits)
    out.copy_(words.view(torch.uint8)[..., :longest, :])


def copy_padded(pages: Sequence[Tensor], out: Tensor) -> None:
    """Write pages of (heads, at most longest, channels) each into `out` as numbers, and zeros behind them."""
    if out.device.type != "cpu":  # few kernels rather than few bytes
        out.copy_(stack_padded(pages, out.shape[-2]))
        return
    for page, memory in zip(pages, out, strict=True):
        if page.shape[1] == memory.shape[1]:
            memory.copy_(page)
        else:
            memory[:, : page.shape[1]] = page
            memory[:, page.shape[1] :] = 0


def stack_padded(parts: Sequence[Tensor], length: int) -> Tensor:
    """(pages, heads, length, …) from (heads, at most `length`, …) each, padded with zeros."""
    return torch.stack(
        [F.pad(part, (0, 0, 0, length - part.shape[1])) if part.shape[1] < length else part for part in parts]
    )


def _stack_planes(pages: Sequence[Tensor], counts: Sequence[int], longest: int) -> tuple[Tensor, Tensor]:
    """The low two bits of three-bit codes and their high bits, of all pages."""
    low_rows = [-(-count // 4) for count in counts]
    if set(counts) == {longest}:  # as pages of one size are: two parts of one tensor, not two for each page
        stacked = torch.stack(list(pages))
        return stacked[..., : low_rows[0], :], stacked[..., low_rows[0] :, :]
    low = [page[..., :rows, :] for page, rows in zip(pages, low_rows, strict=True)]
    high = [page[..., rows:, :] for page, rows in zip(pages, low_rows, strict=True)]
    return stack_padded(low, -(-longest // 4)), stack_padded(high, -(-longest // 8))


def _pack_plane(codes: Tensor, bits: int) -> Tensor:
    per_byte = 8 // bits
    padding = -codes.shape[-2] % per_byte
    padded = F.pad(codes, (0, 0, 0, padding))
    rows = padded.view(*padded.shape[:-2], -1, per_byte, padded.shape[-1])
    packed = torch.zeros_like(rows[..., 0, :])
    for index in range(per_byte):
        packed |= rows[..., index, :] << (bits * index)
    return packed


def _unpack_plane(packed: Tensor, bits: int) -> Tensor:
    """(…, rows, channels) bytes as (…, rows × 8 / bits, channels) codes, in words of eight where possible."""
    words = _as_words(packed)
    shifted = words.unsqueeze(-2) >> _shifts(bits, words.dtype, words.device)
    return shifted.bitwise_and_(_in_every_byte((1 << bits) - 1, words)).flatten(-3, -2)


@cache
def _shifts(bits: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.arange(0, 8, bits, dtype=dtype, device=device).unsqueeze(-1)


def _as_words(x: Tensor) -> Tensor:
    """Eight bytes of the last axis as one number where it can be divided so, else the bytes."""
    return x.view(torch.int64) if x.shape[-1] % 8 == 0 else x


def _in_every_byte(mask: int, words: Tensor) -> int:
    """The mask in each byte of a word: what a shift moves in from the neighbouring byte is dropped, too."""
    return mask * 0x0101010101010101 if words.dtype == torch.int64 else mask


_BLANK_SIDE = 112
"""Pixels: the page that is read only for what stands before it."""


def kept_positions(
    keep: Keep, visual: NDArray[np.bool_], value_norms: NDArray[Any] | None = None
) -> NDArray[np.int32]:
    """All positions to store, in order: every position that is not visual, and the rule's choice.

    `visual` is (positions,): which positions of the prefix hold the page. `value_norms` is (visual
    positions,): the norm of each value vector, averaged over layers and heads.
    """
    on_page = np.flatnonzero(visual)
    count = keep.count(on_page.size)
    if keep.rule == "stride":
        chosen = even_indices(on_page.size, count)
    elif value_norms is None or len(value_norms) != on_page.size:
        raise StoreError(f"the rule {keep.rule!r} needs the norm of every value vector of the page")
    else:
        chosen = np.argsort(-np.asarray(value_norms), kind="stable")[:count]
    stored = ~visual
    stored[on_page[chosen]] = True
    return np.flatnonzero(stored).astype(np.int32)


def even_indices(total: int, count: int) -> NDArray[np.int64]:
    """`count` of `total` indices, spread evenly: ⌊(i + ½) total / count⌋. Gaps differ by at most one."""
    return (2 * np.arange(count, dtype=np.int64) + 1) * total // (2 * max(count, 1))


def compress(
    prefix: Prefix, keep: Keep, numbers: NumberFormat = PAPER_NUMBERS, shared: SharedPositions | None = None
) -> PackedPrefix:
    """Keep a fraction of the visual positions, and all others but those in `shared`, in these numbers."""
    visual = prefix.visual.cpu().numpy()
    norms = average_norms(prefix.values[:, :, prefix.visual]) if keep.rule == "value-norm" else None
    positions = kept_positions(keep, visual, norms)
    if shared is not None:
        before_page = shared.shape[3]
        if visual[:before_page].any():
            raise StoreError(f"a page that starts before position {before_page}, where the prompt still is")
        positions = positions[before_page:]
    kept = torch.from_numpy(positions).to(prefix.keys.device)
    return PackedPrefix(
        **quantize(prefix.keys.index_select(2, kept), prefix.values.index_select(2, kept), numbers),
        positions=positions,
        visual=visual[positions],
        next_position=prefix.next_position,
        grid=prefix.grid,
        numbers=numbers,
        shared=shared,
    )


def encode_shared(backbone: Backbone, storage: StorageSetting) -> SharedPositions | None:
    """Keys and values of the positions before the page; None if pages are stored with them."""
    count = backbone.tokens.count_before_page()
    if storage.numbers.symmetric or not count:
        return None
    blank = "blank" if backbone.reads_text else Image.new("RGB", (_BLANK_SIDE, _BLANK_SIDE), "white")
    [prefix] = backbone.encode([blank], exit_layer=storage.exit_layer)
    return torch.stack([prefix.keys, prefix.values])[:, :, :, :count].float().cpu().contiguous().numpy()


def quantize(keys: torch.Tensor, values: torch.Tensor, numbers: NumberFormat) -> dict[str, Any]:
    """The arrays of a `PackedPrefix` for keys and values, (layers, kv_heads, positions, head_dim) each."""
    if numbers.symmetric:
        key_codes, key_scales = quantize_keys(keys)
        value_codes, value_scales = quantize_values(values)
        return {
            "keys": key_codes.cpu().numpy(),
            "values": value_codes.cpu().numpy(),
            "key_scales": _bits(key_scales.squeeze(-2)),
            "value_scales": _bits(value_scales.squeeze(-1)),
        }
    key_groups = quantize_groups(keys, bits=numbers.key_bits, dim=-2, group=numbers.group)
    value_groups = quantize_groups(values, bits=numbers.value_bits, dim=-1, group=numbers.group)
    return {
        "keys": pack_codes(key_groups.codes, numbers.key_bits).cpu().numpy(),
        "values": pack_codes(value_groups.codes, numbers.value_bits).cpu().numpy(),
        "key_scales": _bits(key_groups.steps),
        "key_minima": _bits(key_groups.minima),
        "value_scales": _bits(value_groups.steps),
        "value_minima": _bits(value_groups.minima),
    }


def _bits(scales: torch.Tensor) -> np.ndarray[tuple[int, ...], np.dtype[np.uint16]]:
    """The bits of bfloat16 scales, as numpy has no such type."""
    return scales.contiguous().cpu().view(torch.uint16).numpy()


def average_norms(vectors: torch.Tensor) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """(positions,) norms of (layers, kv_heads, positions, head_dim), averaged over layers and heads."""
    norms: np.ndarray[tuple[int], np.dtype[np.float32]] = (
        vectors.float().norm(dim=-1).mean(dim=(0, 1)).cpu().numpy()
    )
    return norms


class StoredPrefixes(PrefixBatch):
    """Compressed pages in memory, on the CPU or a device.

    `wait(layer)` is called before a stored layer is used, for pages that are still being read.
    """

    def __init__(
        self,
        pages: Sequence[PackedPrefix],
        *,
        wait: Callable[[int], None] | None = None,
        device: torch.device | None = None,
    ) -> None:
        """Take pages as the store returns them; they are copied only to another device."""
        if any(page.numbers != pages[0].numbers or page.shared is not pages[0].shared for page in pages):
            raise StoreError("pages of several stores in one batch; run the query over each store by itself")
        self._pages = pages
        self._device = device
        self._layers: dict[str, list[tuple[Tensor, ...]]] = {}
        """Every array of each page by name, cut into its layers at once rather than one by one."""
        self._numbers = pages[0].numbers
        self._wait = wait
        self._scales: dict[tuple[str, int, torch.dtype], Tensor] = {}
        """Of all pages, by name; those of one layer at a time."""
        self._shared: Tensor | None = None
        shared = pages[0].shared
        if shared is not None:
            self._shared = torch.from_numpy(shared).to(device)
        self._shared_count = pages[0].shared_count
        self.exit_layer = pages[0].keys.shape[0]
        self.lengths = torch.tensor([self._shared_count + len(page.positions) for page in pages])
        self.next_positions = torch.tensor([page.next_position for page in pages])

    def fill(self, layer: int, keys: Tensor, values: Tensor, *, start: int = 0) -> None:
        """Write decoder layer `layer` of pages from `start` on; padding is finite."""
        if self._wait is not None:
            self._wait(layer)
        if self._shared is not None:
            keys[:, :, : self._shared_count] = self._shared[0, layer]
            values[:, :, : self._shared_count] = self._shared[1, layer]
            keys, values = keys[:, :, self._shared_count :], values[:, :, self._shared_count :]
        chosen = slice(start, start + keys.shape[0])
        if self._numbers.symmetric:
            self._fill_symmetric(chosen, layer, keys, values)
        else:
            self._fill_packed(chosen, layer, keys, values)

    def _fill_symmetric(self, chosen: slice, layer: int, keys: Tensor, values: Tensor) -> None:
        copy_padded(self._of_layer("keys", layer, chosen), keys)
        copy_padded(self._of_layer("values", layer, chosen), values)
        keys.mul_(self._layer_scales("key_scales", layer, 1, keys)[chosen])
        values.mul_(self._layer_scales("value_scales", layer, values.shape[2], values)[chosen])

    def _fill_packed(self, chosen: slice, layer: int, keys: Tensor, values: Tensor) -> None:
        numbers = self._numbers
        counts = [len(page.positions) for page in self._pages[chosen]]
        unpack_codes(self._of_layer("keys", layer, chosen), counts, numbers.key_bits, keys)
        unpack_codes(self._of_layer("values", layer, chosen), counts, numbers.value_bits, values)
        key_groups = numbers.count_groups(keys.shape[2])
        for part, names, length, dim in (
            (keys, ("key_scales", "key_minima"), key_groups, -2),
            (values, ("value_scales", "value_minima"), values.shape[2], -1),
        ):
            steps, minima = (self._layer_scales(name, layer, length, part)[chosen] for name in names)
            restore_groups(part, steps, minima, dim=dim, group=numbers.group)

    def _of_layer(self, name: str, layer: int, chosen: slice) -> list[Tensor]:
        """An array of each chosen page, at one stored layer."""
        if name not in self._layers:
            self._layers[name] = [
                torch.from_numpy(getattr(page, name)).to(self._device).unbind() for page in self._pages
            ]
        return [layers[layer] for layers in self._layers[name][chosen]]

    def _layer_scales(self, name: str, layer: int, length: int, like: Tensor) -> Tensor:
        """Scales of all pages as numbers, (pages, heads, `length`, …), made once for all parts of a layer."""
        key = (name, layer, like.dtype)
        if key not in self._scales:
            scales = self._of_layer(name, layer, slice(None))
            if self._numbers.symmetric:
                one = -2 if name == "key_scales" else -1
                scales = [each.unsqueeze(one) for each in scales]
            self._scales = {known: kept for known, kept in self._scales.items() if known[1] == layer}
            self._scales[key] = stack_padded(scales, length).view(SCALE_DTYPE).to(like.dtype)
        return self._scales[key]
