"""From the prefix the model computed to the one that is stored, and back.

Positions first: a rule keeps a fraction of the visual ones, and all others. Then numbers. The paper's int8 is
symmetric, one bfloat16 scale per key channel and one per value position.

The codec of all other stores takes the mean off, turns keys back to before the rotary embedding, and
decorrelates channels of neighbouring layers by the eigenvectors of their covariance: the store's `Basis`,
fitted on pages sampled from all documents. Coefficients are rounded with one step, coarser only where the
largest would not fit into a byte. Those whose codes are zero on all sampled pages are cut. Positions that lie
far from all others (attention sinks) are stored whole. In memory pages stay int8 codes, and one product for
each layer turns them into keys and values.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from ridgerank.backbones.base import Backbone
from ridgerank.backbones.decoder import Geometry, Prefix, PrefixBatch, Rotation, computes_bf16
from ridgerank.errors import StoreError
from ridgerank.lineage import Keep
from ridgerank.store.layout import Basis, LayerGroup, PackedPrefix

CODE_MAX = 127
SCALE_DTYPE = torch.bfloat16
_KEY_STEP = 0.7
"""Keys are compared with queries: their step is finer, in units of their own deviation."""
TAIL_STEP = 0.25
"""Positions after the page are nearly the same on all pages, and a query looks at them the most: what differs
from their mean is rounded with a step this much finer."""
_FAR = 9.0
"""How many times the median squared distance from the mean makes a position one that is stored whole."""
_NO_LIMIT = 1e30
_POSITIONS_PER_CHANNEL = 4
"""Coefficients are cut only if this many positions per channel were sampled."""
_CODED_SHARE = 1e-3
"""A coefficient is cut if no larger share of its sampled codes is other than zero."""


def quantize(x: Tensor, *, dim: int) -> tuple[Tensor, Tensor]:
    """Round x / s to integers in [−127, 127], s = max |x| / 127 along `dim`, rounded to `SCALE_DTYPE`.

    A scale rounded down by 2⁻⁹ leaves |x / s| below 127.25, which still rounds to 127: the error is at most
    half a step everywhere.
    """
    x = x.float()
    scales = (x.abs().amax(dim=dim, keepdim=True) / CODE_MAX).to(SCALE_DTYPE)
    steps = scales.float()
    codes = torch.where(steps > 0, x / steps, 0.0).round_().clamp_(-CODE_MAX, CODE_MAX)
    return codes.to(torch.int8), scales


def kept_positions(
    keep: Keep, visual: NDArray[np.bool_], value_norms: NDArray[np.floating[Any]]
) -> NDArray[np.int32]:
    """All positions to store: those that are not `visual`, and the rule's choice of the others."""
    on_page = np.flatnonzero(visual)
    count = keep.count(on_page.size)
    if keep.rule == "stride":
        chosen = even_indices(on_page.size, count)
    else:
        chosen = np.argsort(-value_norms, kind="stable")[:count]
    stored = ~visual
    stored[on_page[chosen]] = True
    return np.flatnonzero(stored).astype(np.int32)


def even_indices(total: int, count: int) -> NDArray[np.int64]:
    """`count` of `total` indices, spread evenly: ⌊(i + ½) total / count⌋. Gaps differ by at most one."""
    return (2 * np.arange(count, dtype=np.int64) + 1) * total // (2 * max(count, 1))


class KeptPositions(NamedTuple):
    """A page's prefix at the positions that are stored."""

    keys: Tensor
    """(layers, kv_heads, positions, head_dim), rotated."""
    values: Tensor
    rotary: Tensor
    positions: NDArray[np.int32]
    """Which of the whole prefix these are."""
    page: Prefix

    def packed(
        self, arrays: dict[str, NDArray[Any]], basis: Basis | None = None, lost: float = 0.0
    ) -> PackedPrefix:
        """The page with these arrays."""
        layers, heads, _, dim = self.keys.shape
        visual = self.page.visual.cpu().numpy()[self.positions]
        facts = (self.positions, visual, self.page.next_position, self.page.grid)
        return PackedPrefix(arrays, (layers, heads, dim), *facts, basis, lost)


def keep_positions(prefix: Prefix, keep: Keep, shared_count: int = 0) -> KeptPositions:
    """Select the positions to store, the first `shared_count` left out."""
    norms = prefix.values[:, :, prefix.visual].float().norm(dim=-1).mean(dim=(0, 1)).cpu().numpy()
    positions = kept_positions(keep, prefix.visual.cpu().numpy(), norms)[shared_count:]
    kept = torch.from_numpy(positions).to(prefix.keys.device)
    keys, values = (part.index_select(2, kept) for part in (prefix.keys, prefix.values))
    return KeptPositions(keys, values, prefix.rotary.index_select(1, kept), positions, prefix)


def compress(prefix: Prefix, keep: Keep, basis: Basis | None = None) -> PackedPrefix:
    """The page as a store of this setting holds it: in a basis, or as the paper's int8 without one."""
    if basis is not None:
        return encode_kept(keep_positions(prefix, keep, basis.shared.shape[3]), basis)
    kept = keep_positions(prefix, keep)
    key_codes, key_scales = quantize(kept.keys, dim=-2)
    value_codes, value_scales = quantize(kept.values, dim=-1)
    return kept.packed(
        {
            "keys": key_codes.cpu().numpy(),
            "values": value_codes.cpu().numpy(),
            "key_scales": _bits(key_scales.squeeze(-2)),
            "value_scales": _bits(value_scales.squeeze(-1)),
        }
    )


def _bits(scales: Tensor) -> NDArray[np.uint16]:
    """The bits of bfloat16 scales, as numpy has no such type."""
    bits: NDArray[np.uint16] = scales.contiguous().cpu().view(torch.uint16).numpy()
    return bits


def encode_shared(backbone: Backbone, exit_layer: int) -> NDArray[np.float32]:
    """Keys and values of the positions before the page: (2, layers, kv_heads, positions, head_dim)."""
    blank = "blank" if backbone.reads_text else Image.new("RGB", (_BLANK_SIDE, _BLANK_SIDE), "white")
    [prefix] = backbone.encode([blank], exit_layer=exit_layer)
    count = len(backbone.tokens.around_text()[0])
    shared = torch.stack([prefix.keys, prefix.values])[:, :, :, :count].float().cpu().contiguous()
    return shared.numpy()


_BLANK_SIDE = 112
"""Pixels: the page that is read only for what stands before it."""


def choose_group(geometry: Geometry) -> int:
    """How many layers share a transform: more make pages smaller, and each product larger."""
    return 4 if 2 * geometry.kv_heads * geometry.head_dim <= geometry.width else 2


def fit_basis(
    pages: Sequence[KeptPositions],
    *,
    quality: float,
    rotation: Rotation,
    shared: NDArray[np.float32],
    layers_per_group: int,
) -> Basis:
    """The basis of a store, from sampled pages; a step is the mean channel's deviation over `quality`."""
    _, heads, _, dim = pages[0].keys.shape
    after = min(_count_after(page) for page in pages)
    keys = [_turn_back(page.keys, page.rotary, rotation) for page in pages]
    values = [page.values.float() for page in pages]
    groups, limits, tails = [], [], []
    for parts, factor in ((keys, _KEY_STEP), (values, 1.0)):
        bodies, ends = zip(*(_split_tail(part, after) for part in parts), strict=True)
        tails.append(torch.stack(ends).mean(dim=0))
        flat = torch.cat([_flatten(body) for body in bodies])
        if not len(flat):  # blank pages alone
            flat = flat.new_zeros(1, flat.shape[1])
        distances = (flat - flat.mean(dim=0)).square().sum(dim=1)
        near = flat[distances <= _FAR * distances.median()]
        mean = near.mean(dim=0)
        limits.append(_FAR * float((near - mean).square().sum(dim=1).median()) or _NO_LIMIT)
        step = factor * math.sqrt(float(near.var(dim=0, correction=0).mean()) or 1.0) / quality
        channels = layers_per_group * heads * dim
        end = torch.cat([_flatten(each - tails[-1]) for each in ends])
        blocks = zip(torch.split(near, channels, 1), torch.split(end, channels, 1), strict=True)
        groups.append(tuple(_fit_group(block, end, step) for block, end in blocks))
    basis = Basis(
        shared=shared,
        tail=torch.stack(tails).cpu().numpy(),
        frequencies=rotation.frequencies,
        interleaved=rotation.interleaved,
        scaling=rotation.scaling,
        layers_per_group=layers_per_group,
        keys=groups[0],
        values=groups[1],
        limits=(limits[0], limits[1]),
        lost=0.0,
    )
    return replace(basis, lost=max(encode_kept(page, basis).lost for page in pages))


def _fit_group(block: Tensor, end: Tensor, step: float) -> LayerGroup:
    """Mean, eigenvectors and steps of (positions, channels); `end` are positions after the page."""
    count, channels = block.shape
    mean = block.mean(dim=0)
    centered = block - mean
    covariance = (centered.T @ centered).double() / max(1, count - 1)
    rows = torch.linalg.eigh(covariance.cpu()).eigenvectors.T.flip(0).to(torch.float16)
    coefficients = centered @ rows.float().T.to(centered.device)
    coded = ((coefficients / step).abs() >= 0.5).float().mean(dim=0).cpu() > _CODED_SHARE
    if count < _POSITIONS_PER_CHANNEL * channels:  # too few to say what is always zero
        coded[:] = True
    steps = _fit_steps(coefficients, step)
    tail_steps = _fit_steps(end @ rows.float().T.to(end.device), step * TAIL_STEP)
    return LayerGroup(mean.cpu().numpy(), *(each[coded].numpy() for each in (rows, steps, tail_steps)))


def _fit_steps(coefficients: Tensor, step: float) -> Tensor:
    """Steps of (positions, rank) coefficients: this one, or coarse enough for the largest."""
    if not len(coefficients):
        return torch.full((coefficients.shape[1],), step)
    return (_HEADROOM * coefficients.abs().amax(dim=0).cpu() / CODE_MAX).clamp_min(step)


def encode_kept(kept: KeptPositions, basis: Basis) -> PackedPrefix:
    """Coefficients of a page, rounded; positions far from the mean or beyond a code's range are whole."""
    device, channels = kept.keys.device, len(basis.keys[0].mean)
    after = basis.tail.shape[3]
    rotation = Rotation(basis.frequencies, basis.interleaved, basis.scaling)
    parts = (_turn_back(kept.keys, kept.rotary, rotation), kept.values.float())
    whole = torch.zeros(kept.keys.shape[2] - after, dtype=torch.bool, device=device)
    codes: list[list[Tensor]] = [[], []]
    tail_codes: list[list[Tensor]] = [[], []]
    squares = torch.zeros(2, 2, len(whole), device=device)
    for kind, (part, groups) in enumerate(zip(parts, (basis.keys, basis.values), strict=True)):
        body, end = _split_tail(part, after)
        end = end - torch.from_numpy(basis.tail[kind]).to(device)
        blocks = (torch.split(_flatten(each), channels, 1) for each in (body, end))
        for block, end_block, group in zip(*blocks, groups, strict=True):
            mean, rows, steps, tail_steps = (
                torch.from_numpy(array).to(device, torch.float32)
                for array in (group.mean, group.rows, group.steps, group.tail_steps)
            )
            coefficients = (block - mean) @ rows.T
            squares[kind, 0] += (block - mean).square().sum(dim=1)
            squares[kind, 1] += coefficients.square().sum(dim=1)
            rounded = (coefficients / steps).round_()
            whole |= (rounded.abs() > CODE_MAX).any(dim=1)
            codes[kind].append(rounded.T)
            rounded = (end_block @ rows.T / tail_steps).round_()
            tail_codes[kind].append(rounded.clamp_(-CODE_MAX, CODE_MAX).T)
        whole |= squares[kind, 0] > basis.limits[kind]
    coded = torch.cat(list(chain.from_iterable(zip(*codes, strict=True))))
    coded[:, whole] = 0
    indices = whole.nonzero()[:, 0]
    vectors = torch.stack([part[:, :, indices] for part in parts]).clamp(-_HALF_MAX, _HALF_MAX)
    total, found = squares[:, :, ~whole].sum(dim=2).T
    lost = float((1 - found / total.clamp_min(1e-30)).clamp_min(0).mean())
    arrays = {
        "codes": coded.to(torch.int8),
        "tail_codes": torch.cat(list(chain.from_iterable(zip(*tail_codes, strict=True)))).to(torch.int8),
        "rotary": kept.rotary.to(torch.int32),
        "whole": indices.to(torch.int32),
        "whole_vectors": vectors.to(torch.float16),
    }
    return kept.packed({name: array.cpu().numpy() for name, array in arrays.items()}, basis, lost)


def _count_after(kept: KeptPositions) -> int:
    """How many positions stand after the page."""
    visual = kept.page.visual.flip(0)
    return int(visual.int().argmax()) if visual.any() else kept.keys.shape[2]


def _split_tail(x: Tensor, after: int) -> tuple[Tensor, Tensor]:
    """(…, positions, head_dim) cut before its last `after` positions."""
    count = x.shape[-2] - after
    return x[..., :count, :], x[..., count:, :]


_HALF_MAX = 65504.0
_HEADROOM = 1.25
"""The largest sampled coefficient times this fits into a code."""


def _flatten(x: Tensor) -> Tensor:
    """(layers, kv_heads, positions, head_dim) -> (positions, layers x kv_heads x head_dim)."""
    return x.permute(2, 0, 1, 3).flatten(1)


def _turn_back(keys: Tensor, rotary: Tensor, rotation: Rotation) -> Tensor:
    """Keys (layers, kv_heads, positions, head_dim) before they were turned by their positions, float32."""
    cos, sin = rotation.angles(rotary)
    out = torch.empty_like(keys, dtype=torch.float32)
    _turn(keys.float() / rotation.scaling**2, cos, -sin, rotation, out=out)
    return out


def _turn(keys: Tensor, cos: Tensor, sin: Tensor, rotation: Rotation, *, out: Tensor) -> None:
    """Turn each pair of channels of (…, positions, head_dim) by the angle of its position, into `out`.

    This is the store's own rotation and stays as it is: keys of every release are turned with it.
    """
    pairs = rotation.frequencies.shape[1]
    first, second = (
        (slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2))
        if rotation.interleaved
        else (slice(0, pairs), slice(pairs, 2 * pairs))
    )
    left, right = keys[..., first], keys[..., second]
    out[..., first] = torch.mul(left, cos).addcmul_(right, sin, value=-1)
    out[..., second] = torch.mul(right, cos).addcmul_(left, sin)
    if keys.shape[-1] > 2 * pairs:
        out[..., 2 * pairs :] = keys[..., 2 * pairs :]


class StoredPrefixes(PrefixBatch):
    """Pages of one store in memory, on the CPU or a device."""

    def __init__(self, pages: Sequence[PackedPrefix], *, device: torch.device | None = None) -> None:
        """Take pages as the store returns them; they are copied only to another device."""
        if any(page.basis is not pages[0].basis or page.shape != pages[0].shape for page in pages):
            raise StoreError("pages of several stores in one batch; run the query over each store by itself")
        self._pages = pages
        self._device = device
        shared_count = pages[0].shared_count
        self.exit_layer = pages[0].shape[0]
        self.lengths = torch.tensor([shared_count + len(page.positions) for page in pages])
        self.next_positions = torch.tensor([page.next_position for page in pages])
        self._arrays: dict[str, Tensor] = {}
        basis = pages[0].basis
        self._decoder = None if basis is None else _BatchDecoder(pages, basis, device)

    def fill(self, layer: int, keys: Tensor, values: Tensor, *, start: int = 0) -> None:
        """Write decoder layer `layer` of pages from `start` on; padding is finite."""
        chosen = slice(start, start + keys.shape[0])
        if self._decoder is not None:
            self._decoder.fill(layer, keys, values, chosen)
            return
        for part, name, scales, one in (
            (keys, "keys", "key_scales", -2),
            (values, "values", "value_scales", -1),
        ):
            part.copy_(self._padded(name)[layer, chosen])
            steps = self._padded(scales)[layer, chosen].view(SCALE_DTYPE).to(part.dtype)
            part.mul_(steps.unsqueeze(one))

    def _padded(self, name: str) -> Tensor:
        """(layers, pages, heads, positions, …): an array of all int8 pages, zeros after each: one copy."""
        if name not in self._arrays:
            arrays = [page.arrays[name] for page in self._pages]
            layers, heads, _, *channels = arrays[0].shape
            longest = max(array.shape[2] for array in arrays)
            whole = np.zeros((layers, len(arrays), heads, longest, *channels), arrays[0].dtype)
            for number, array in enumerate(arrays):
                whole[:, number, :, : array.shape[2]] = array
            self._arrays[name] = torch.from_numpy(whole).to(self._device)
        return self._arrays[name]


_ON_DEVICE: WeakKeyDictionary[Basis, dict[object, tuple[Tensor, Tensor]]] = WeakKeyDictionary()
"""Rows and means of a basis as a pass needs them: made and moved to a device once, not by every request."""
_KEPT_BYTES = 32 << 20


class _BatchDecoder:
    """Turns the codes of a batch of pages into keys and values, some pages of one layer at a time."""

    def __init__(self, pages: Sequence[PackedPrefix], basis: Basis, device: torch.device | None) -> None:
        self._basis = basis
        self._products = _ON_DEVICE.setdefault(basis, {})
        on_cpu = device is None or device.type == "cpu"
        self._passing = on_cpu and sum(group.rows.nbytes for group in basis.groups) > _KEPT_BYTES
        """Whether products of a large basis are made again for every group of layers, to save memory."""
        self._group, self._flat = -1, dict[object, Tensor]()
        """The group of layers being restored, and its codes as numbers."""
        self._rotation = Rotation(basis.frequencies, basis.interleaved, basis.scaling)
        self._heads, self._dim = pages[0].shape[1:]
        after, ranks = basis.tail.shape[3], [len(group.rows) for group in basis.groups]
        counts = np.array([len(page.positions) - after for page in pages])
        # (rank, pages, positions): the codes of a coefficient lie side by side, as they do in a page.
        codes = np.zeros((basis.rank, len(pages), counts.max()), dtype=np.int8)
        rotary = np.zeros((len(basis.frequencies), len(pages), counts.max() + after), dtype=np.int32)
        for number, (page, count) in enumerate(zip(pages, counts, strict=True)):
            codes[:, number, :count] = page.arrays["codes"]
            rotary[:, number, :count] = page.arrays["rotary"][:, :count]
            rotary[:, number, counts.max() :] = page.arrays["rotary"][:, count:]
        tail_codes = np.stack([page.arrays["tail_codes"] for page in pages], axis=1)
        self._codes, self._tail_codes = (
            torch.split(torch.from_numpy(each).to(device), ranks) for each in (codes, tail_codes)
        )
        angles = self._rotation.angles(torch.from_numpy(rotary).flatten(1).to(device))
        self._angles = [part.view(len(pages), 1, counts.max() + after, -1) for part in angles]
        self._longest, self._after = int(counts.max()), after
        places = basis.shared.shape[3] + counts[:, None] + np.arange(after)
        self._tail_places = torch.from_numpy(places).to(device)
        self._shared, self._tail = (torch.from_numpy(each).to(device) for each in (basis.shared, basis.tail))
        self._whole = [
            (number, torch.from_numpy(page.arrays["whole"]).long(), self._turn_whole(page, number, device))
            for number, page in enumerate(pages)
            if len(page.arrays["whole"])
        ]

    def _turn_whole(self, page: PackedPrefix, number: int, device: torch.device | None) -> Tensor:
        """Keys and values (2, layers, kv_heads, positions, head_dim) that a page stores whole."""
        vectors = torch.from_numpy(page.arrays["whole_vectors"]).to(device).float()
        whole = torch.from_numpy(page.arrays["whole"]).long()
        cos, sin = (part[number, :, whole] for part in self._angles)
        _turn(vectors[0].clone(), cos, sin, self._rotation, out=vectors[0])
        return vectors

    def fill(self, layer: int, keys: Tensor, values: Tensor, chosen: slice) -> None:
        """Write one layer of the chosen pages."""
        before, longest = self._shared.shape[3], self._longest
        for part, shared in zip((keys, values), self._shared[:, layer], strict=True):
            part[:, :, :before] = shared
            part[:, :, before + longest :] = 0
        cos, sin = (part[chosen] for part in self._angles)
        found_keys, found_values = (self._restore(kind, layer, chosen, keys) for kind in range(2))
        body = slice(before, before + longest)
        turning = (cos[:, :, :longest], sin[:, :, :longest], self._rotation)
        _turn(found_keys, *turning, out=keys[:, :, body])
        values[:, :, body] = found_values
        tail_keys, tail_values = (self._restore(kind, layer, chosen, keys, tail=True) for kind in range(2))
        turned = torch.empty_like(tail_keys, dtype=keys.dtype)
        _turn(tail_keys, cos[:, :, longest:], sin[:, :, longest:], self._rotation, out=turned)
        page = torch.arange(len(keys), device=keys.device)[:, None]
        place = self._tail_places[chosen]
        keys[page, :, place] = turned.transpose(1, 2)
        values[page, :, place] = tail_values.transpose(1, 2).to(values.dtype)
        for number, positions, vectors in self._whole:
            if chosen.start <= number < chosen.stop:
                for part, exact in zip((keys, values), vectors[:, layer], strict=True):
                    part[number - chosen.start, :, before + positions] = exact.to(part.dtype)

    def _restore(self, kind: int, layer: int, chosen: slice, like: Tensor, *, tail: bool = False) -> Tensor:
        """mean + codes × steps × rows: (pages, kv_heads, positions, head_dim), keys not turned yet."""
        number, within = divmod(layer, self._basis.layers_per_group)
        group = (self._basis.keys, self._basis.values)[kind][number]
        dtype = torch.bfloat16 if computes_bf16(like.device) else like.dtype
        width = self._heads * self._dim
        part = slice(within * width, (within + 1) * width)
        steps = (group.tail_steps if tail else group.steps)[:, None]
        if number != self._group:
            self._group, self._flat = number, {}
            if self._passing:
                self._products = {}
        key = (kind, layer, tail, like.device, dtype)
        if key not in self._products:
            rows = torch.from_numpy(group.rows[:, part] * steps).to(like.device, dtype)
            self._products[key] = rows, torch.from_numpy(group.mean[part]).to(like.device, dtype)
        rows, mean = self._products[key]
        some = (kind, tail, chosen.start, chosen.stop)
        if some not in self._flat:
            codes = (self._tail_codes if tail else self._codes)[2 * number + kind][:, chosen]
            self._flat[some] = codes.flatten(1).to(dtype).T
        flat, pages = self._flat[some], chosen.stop - chosen.start
        if tail:
            differences = (flat @ rows).view(pages, -1, self._heads, self._dim).transpose(1, 2)
            return self._tail[kind, layer] + differences
        found = torch.addmm(mean, flat, rows)
        return found.view(pages, -1, self._heads, self._dim).transpose(1, 2)
