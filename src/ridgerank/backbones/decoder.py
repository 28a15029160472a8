"""The decoder's layers, run by hand: the page part once, then only the query over what was stored.

The modules are the model's own. The library's forward cannot stop at a layer, start from dropped positions,
share the suffix between pages, or do the last layer for one position only. Families differ in names, in extra
norms and in the rotation; a `Block` and `rotate` hold all of that. A few pages at a time are unpacked, joined
with the query's own keys and attended to, since those of twenty pages exceed a processor's cache.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache, partial
from math import prod
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (its usual name)
from torch.overrides import TorchFunctionMode

from ridgerank.backbones.weights import release
from ridgerank.errors import BackboneError

Norm = Callable[[Tensor], Tensor]
Rotary = tuple[Tensor, Tensor]
"""Cosines and sines, (batch, positions, rotary_dim) each."""
_MLP_ROWS = 2048
"""Positions that go through an MLP at once: its width is several times the model's, and so is its memory."""


@dataclass(frozen=True, slots=True)
class Geometry:
    """The shape of a decoder."""

    layers: int
    width: int
    query_heads: int
    kv_heads: int
    head_dim: int

    def require_layers(self, exit_layer: int) -> None:
        """Refuse layers that the decoder does not have, before anything is read."""
        if not 0 < exit_layer <= self.layers:
            raise BackboneError(
                f"exit layer {exit_layer} of a model of {self.layers} layers; expected 1 to {self.layers}"
            )


@dataclass(frozen=True, slots=True, eq=False)
class Prefix:
    """One page's keys and values at the layers below the exit layer, uncompressed."""

    keys: Tensor
    """(layers, kv_heads, positions, head_dim), after the rotary embedding: dropping positions is safe."""
    values: Tensor
    """(layers, kv_heads, positions, head_dim)."""
    visual: Tensor
    """(positions,) bool: which positions hold the page, its image or its text; the others hold system and
    instruction."""
    grid: tuple[int, int]
    """Rows and columns of the visual positions on the page; their product is the number of them."""
    next_position: int
    """The rotary position at which the query suffix starts."""
    rotary: Tensor
    """(axes, positions) int64: by which each key was turned."""

    @property
    def count(self) -> int:
        """How many positions."""
        return int(self.keys.shape[2])


@dataclass(frozen=True, slots=True, eq=False)
class Rotation:
    """How a decoder turns keys by their position, as numbers that no release of a library can change."""

    frequencies: NDArray[np.float64]
    """(axes, pairs): by which angle a pair of channels turns for one position along an axis."""
    interleaved: bool
    """Whether channels 2 i and 2 i + 1 make a pair; else i and i + pairs."""
    scaling: float
    """By how much turned channels are stretched, too."""

    def angles(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines (positions, pairs), float32, for (axes, positions); stretched."""
        frequencies = torch.from_numpy(self.frequencies).to(positions.device)
        angles = positions.T.to(frequencies.dtype) @ frequencies
        return tuple((part * self.scaling).float() for part in (angles.cos(), angles.sin()))  # type: ignore[return-value]


class PrefixBatch:
    """K pages' uncompressed prefixes, handed out one layer at a time (compressed ones: `StoredPrefixes`)."""

    lengths: Tensor
    """(K,) int64: how many positions of each page are real."""
    next_positions: Tensor
    """(K,) int64: where the suffix starts, page by page."""
    exit_layer: int

    def __init__(self, prefixes: Sequence[Prefix]) -> None:
        if not prefixes:
            raise BackboneError("no prefixes to run a query over; expected at least one page")
        self._prefixes = prefixes
        self.lengths = torch.tensor([prefix.count for prefix in prefixes])
        self.next_positions = torch.tensor([prefix.next_position for prefix in prefixes])
        self.exit_layer = prefixes[0].keys.shape[0]

    def fill(self, layer: int, keys: Tensor, values: Tensor, *, start: int = 0) -> None:
        """Write decoder layer `layer` into `keys` and `values`: (pages, kv_heads, positions, head_dim) each.

        These are as many pages as the caller's memory has room for, from page `start` on, padded on the right
        to max(lengths) positions. Padding is finite; no query attends to it.
        """
        for row, prefix in enumerate(self._prefixes[start : start + keys.shape[0]]):
            length = prefix.count
            keys[row, :, :length].copy_(prefix.keys[layer])
            values[row, :, :length].copy_(prefix.values[layer])
            keys[row, :, length:].zero_()
            values[row, :, length:].zero_()


@dataclass(frozen=True, slots=True, eq=False)
class Affine:
    """x ↦ x Wᵀ + b."""

    weight: Tensor
    bias: Tensor | None = None

    @classmethod
    def join(cls, *linears: nn.Linear) -> Self:
        """Linear modules of one input as one, whose rows they become: nothing is in memory twice."""
        joined: dict[str, Tensor | None] = {"weight": linears[0].weight, "bias": linears[0].bias}
        for name, first in joined.items():
            if first is not None and len(linears) > 1:
                parts = [getattr(linear, name).detach() for linear in linears]
                joined[name] = whole = torch.cat(parts)
                for linear, rows in zip(
                    linears, torch.split(whole, [len(part) for part in parts]), strict=True
                ):
                    setattr(linear, name, nn.Parameter(rows, requires_grad=False))
                for part in parts:
                    release(part)
        return cls(**joined)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """One decoder layer's parts under one set of names; norms that its family lacks are None."""

    attention_norm: Norm
    attention_in: Affine
    output: Affine
    mlp_norm: Norm
    mlp_in: Affine
    down: Affine
    query_norm: Norm | None = None
    key_norm: Norm | None = None
    output_norm: Norm | None = None
    down_norm: Norm | None = None


def rotate_halves(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn the two halves of each head against each other, as most decoders since Llama."""
    first, second = x.chunk(2, dim=-1)
    return torch.addcmul(x * cos, torch.cat([-second, first], dim=-1), sin)


def llama_block(layer: Any) -> Block:  # noqa: ANN401
    """A layer whose parts have the names Llama gave them, as most decoders since, or GLM's for the MLP."""
    attention, mlp = layer.self_attn, layer.mlp
    gate_up = (mlp.gate_up_proj,) if hasattr(mlp, "gate_up_proj") else (mlp.gate_proj, mlp.up_proj)
    norms = {
        name: root_mean_square(module)
        for name, module in {
            "query_norm": getattr(attention, "q_norm", None),
            "key_norm": getattr(attention, "k_norm", None),
            "output_norm": getattr(layer, "post_self_attn_layernorm", None),
            "down_norm": getattr(layer, "post_mlp_layernorm", None),
        }.items()
        if module is not None
    }
    return Block(
        attention_norm=root_mean_square(layer.input_layernorm),
        attention_in=Affine.join(attention.q_proj, attention.k_proj, attention.v_proj),
        output=Affine.join(attention.o_proj),
        mlp_norm=root_mean_square(layer.post_attention_layernorm),
        mlp_in=Affine.join(*gate_up),
        down=Affine.join(mlp.down_proj),
        **norms,
    )


def root_mean_square(norm: Any) -> Norm:  # noqa: ANN401 (each family has a class of its own)
    """The norm of a module as one operation where a device has it."""
    weight = norm.weight
    return partial(F.rms_norm, normalized_shape=weight.shape, weight=weight, eps=norm.variance_epsilon)


class Scratch:
    """Memory reused from layer to layer; fresh pages for every product cost a CPU a fifth of the pass."""

    def __init__(self, like: Tensor) -> None:
        self._like = like
        self._buffers: dict[str, Tensor] = {}

    def linear(self, name: str, x: Tensor, affine: Affine) -> Tensor:
        """(..., in) -> (..., out), in memory that the next call of this `name` overwrites."""
        rows = x.reshape(-1, x.shape[-1])
        shape = (rows.shape[0], affine.weight.shape[0])
        buffer = self._buffers.get(name)
        if buffer is None or buffer.numel() < prod(shape):
            buffer = self._buffers[name] = self._like.new_empty(prod(shape))
        out = buffer[: prod(shape)].view(shape)
        if affine.bias is None:
            torch.mm(rows, affine.weight.t(), out=out)
        else:
            torch.addmm(affine.bias, rows, affine.weight.t(), out=out)
        return out.view(*x.shape[:-1], -1)


class Decoder:
    """A stack of blocks with the family's rotation."""

    def __init__(
        self,
        take_block: Callable[[int], Block],
        geometry: Geometry,
        *,
        rotary: Callable[[Tensor, Tensor], Rotary],
        rotate: Callable[[Tensor, Tensor, Tensor], Tensor],
    ) -> None:
        """`take_block(layer)` is called once; `rotary(like, positions)` gives cosines and sines."""
        self.block = cache(take_block)
        self._geometry = geometry
        self._rotary = rotary
        self._rotate = rotate
        self._groups = geometry.query_heads // geometry.kv_heads
        self._splits = [heads * geometry.head_dim for heads in (geometry.query_heads, geometry.kv_heads)]

    def prefill(
        self,
        hidden: Tensor,
        positions: Tensor,
        *,
        exit_layer: int,
        visual: Tensor,
        layer_features: Sequence[Tensor] = (),
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Rotated keys and values of the layers below `exit_layer`, (pages, kv_heads, positions, head_dim).

        `hidden` is (pages, positions, width), padded on the right: a causal decoder never looks there. It is
        overwritten, and so is what is yielded, by the next layer. `layer_features` are (visual positions of
        all pages, width) each: what a vision tower adds behind layer 0, 1, ..., where `visual` is set.
        """
        cos, sin = (part.unsqueeze(1) for part in self._rotary(hidden, positions))
        scratch = Scratch(hidden)
        for index in range(exit_layer):
            block = self.block(index)
            turned, values = self._project(block, block.attention_norm(hidden), scratch)
            queries, keys = self._queries_and_keys(self._rotate(turned, cos, sin))
            yield keys, values
            if index == exit_layer - 1:
                break
            attended = F.scaled_dot_product_attention(
                queries, keys, values, is_causal=True, enable_gqa=self._groups > 1
            )
            self._finish(block, hidden, attended.transpose(1, 2).flatten(2), scratch)
            if index < len(layer_features):
                hidden[visual] += layer_features[index].to(hidden.dtype)

    def read_rotation(self, axes: int, device: torch.device) -> Rotation:
        """How keys are turned, read off the decoder's own rotation of positions 0 and 1 along each axis."""
        positions = torch.cat([torch.zeros(axes, 1), torch.eye(axes)], dim=1).long().to(device)
        cos, sin = self._rotary(torch.zeros(1, 1, 1, device=device), positions[:, None].squeeze(0))
        width = cos.shape[-1]
        unit = torch.zeros(1, 1, 1, self._geometry.head_dim, device=device)
        unit[..., 0] = 1.0
        quarter = self._rotate(unit, torch.zeros(width, device=device), torch.ones(width, device=device))
        partner = int(quarter[0, 0, 0, :width].argmax())
        interleaved = partner == 1 and width > 2
        angles = torch.atan2(sin[0].double(), cos[0].double())[1:]
        pairs = angles[:, ::2] if interleaved else angles[:, : width // 2]
        return Rotation(pairs.cpu().numpy(), interleaved, float(cos[0, 0, 0]))

    def extend(
        self,
        hidden: Tensor,
        lengths: Tensor | None,
        prefixes: PrefixBatch,
        *,
        owners: Tensor | None = None,
        attention: list[Tensor] | None = None,
    ) -> Tensor:
        """States (pairs, width) after layer `prefixes.exit_layer` − 1 at each suffix's last position (eq. 5).

        Without `lengths` the states of all positions, (pairs, positions, width), padding included.
        `hidden` is (suffixes, positions, width), padded on the right, `lengths` (suffixes,). One suffix
        runs over every page, many suffixes over one page, or the two pair up; with `owners` (pages,), page i
        is for suffix owners[i].

        A list given as `attention` is filled, layer by layer, with what each position attended to, averaged
        over heads: (pairs, positions, longest page + positions).
        """
        scratch = Scratch(hidden)
        hidden = hidden.clone()
        suffix = hidden.shape[1]
        pages = prefixes.lengths.shape[0]
        pairs = max(hidden.shape[0], pages)
        page = int(prefixes.lengths.max())
        starts = prefixes.next_positions.to(hidden.device).expand(pairs)
        positions = starts[:, None] + torch.arange(suffix, device=hidden.device)
        cos, sin = (part.unsqueeze(1) for part in self._rotary(hidden, positions))
        real = torch.arange(page, device=hidden.device) < prefixes.lengths.to(hidden.device)[:, None]
        mask = self._mask(real.expand(pairs, -1), suffix, hidden)
        if owners is not None:
            owners = owners.to(hidden.device)
            lengths = None if lengths is None else lengths.to(hidden.device)[owners]
        last = None if lengths is None else (lengths.to(hidden.device) - 1).expand(pairs)
        row = torch.arange(pairs, device=hidden.device)
        joined_pages = JoinedPages(prefixes, self._geometry, pairs=pairs, suffix=suffix, like=hidden)

        for index in range(prefixes.exit_layer):
            block = self.block(index)
            # Where a suffix is still one row, these products are made once, for all its pages.
            turned, values = self._project(block, block.attention_norm(hidden), scratch)
            if owners is not None:
                turned, values, hidden = (part[owners] for part in (turned, values, hidden))
                owners = None
            queries, keys = self._queries_and_keys(self._rotate(turned, cos, sin))
            hidden = hidden.expand(pairs, -1, -1).contiguous()
            if last is not None and index == prefixes.exit_layer - 1:  # no other position's output is read
                hidden = hidden[row, last].unsqueeze(1)
                queries = queries[row, :, last].unsqueeze(2)
                mask = mask[row, :, last].unsqueeze(2).expand(-1, -1, self._groups, -1)
            attended, weights = [], []
            for some, joined_keys, joined_values in joined_pages.join(index, keys, values):
                asking, visible = queries[some], mask[some]
                attended.append(self._attend(asking, joined_keys, joined_values, visible))
                if attention is not None:
                    weights.append(attention_weights(asking, joined_keys, visible[:, 0]))
            if attention is not None:
                attention.append(torch.cat(weights))
            self._finish(block, hidden, torch.cat(attended), scratch)
        return hidden if last is None else hidden[:, 0]

    def _mask(self, real: Tensor, suffix: int, like: Tensor) -> Tensor:
        """(pairs, 1, groups x suffix, page + suffix): 0 where a suffix position may look, −∞ elsewhere."""
        causal = torch.ones(suffix, suffix, dtype=torch.bool, device=like.device).tril()
        pairs = real.shape[0]
        visible = torch.cat(
            [real[:, None].expand(-1, suffix, -1), causal.expand(pairs, -1, -1)], dim=-1
        ).unsqueeze(1)
        mask = like.new_zeros(visible.shape).masked_fill_(~visible, float("-inf"))
        return mask.repeat(1, 1, self._groups, 1)

    def _attend(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
        """(pairs, positions, query_heads x head_dim), heads that share a key head laid end to end."""
        pairs, heads, positions, dim = queries.shape
        folded = queries.reshape(pairs, heads // self._groups, self._groups * positions, dim)
        attended = F.scaled_dot_product_attention(folded, keys, values, attn_mask=mask)
        return attended.view(pairs, heads, positions, dim).transpose(1, 2).flatten(2)

    def _finish(self, block: Block, hidden: Tensor, attended: Tensor, scratch: Scratch) -> None:
        """Add attention's output and the MLP's to `hidden`, in place."""
        added = scratch.linear("added", attended, block.output)
        hidden.add_(block.output_norm(added) if block.output_norm else added)
        for rows in torch.split(hidden.view(-1, hidden.shape[-1]), _MLP_ROWS):
            normed = block.mlp_norm(rows)
            gate, up = scratch.linear("mlp", normed, block.mlp_in).chunk(2, dim=-1)
            F.silu(gate, inplace=True).mul_(up)
            added = scratch.linear("added", gate, block.down)
            rows.add_(block.down_norm(added) if block.down_norm else added)

    def _project(self, block: Block, normed: Tensor, scratch: Scratch) -> tuple[Tensor, Tensor]:
        """Queries above keys, as heads that are still to be turned, and values."""
        asked, kept = self._splits
        projected = scratch.linear("attention", normed, block.attention_in)
        turned, values = map(self._heads, torch.split(projected, [asked + kept, kept], dim=-1))
        if block.query_norm and block.key_norm:
            queries, keys = self._queries_and_keys(turned)
            turned = torch.cat([block.query_norm(queries), block.key_norm(keys)], dim=1)
        return turned, values

    def _queries_and_keys(self, heads: Tensor) -> tuple[Tensor, Tensor]:
        first = heads.shape[1] - self._geometry.kv_heads
        return heads[:, :first], heads[:, first:]

    def _heads(self, x: Tensor) -> Tensor:
        """(batch, positions, heads x head_dim) -> (batch, heads, positions, head_dim)."""
        dim = self._geometry.head_dim
        return x.view(*x.shape[:2], x.shape[-1] // dim, dim).transpose(1, 2)


def attention_weights(queries: Tensor, keys: Tensor, mask: Tensor) -> Tensor:
    """softmax(q kᵀ / √dim + mask), averaged over heads: (pairs, positions, keys), float32.

    `queries` is (pairs, heads, positions, dim), `keys` (pairs, kv_heads, keys, dim), both rotated, `mask`
    (pairs, at least as many positions, keys): 0 where a position may look, −∞ elsewhere.
    """
    pairs, _, positions, dim = queries.shape
    folded = queries.float().reshape(pairs, keys.shape[1], -1, positions, dim)
    logits: Tensor = folded @ keys.float().transpose(2, 3).unsqueeze(2) / dim**0.5
    return (logits + mask[:, None, None, :positions].float()).softmax(dim=-1).mean(dim=(1, 2))


_CACHED_BYTES = 4 << 20
"""Keys and values that are unpacked at once on a CPU; twice and four times as much was slower."""


class JoinedPages:
    """The memory in which pages and suffixes are joined, layer after layer."""

    def __init__(
        self, prefixes: PrefixBatch, geometry: Geometry, *, pairs: int, suffix: int, like: Tensor
    ) -> None:
        self._prefixes = prefixes
        self._pairs = pairs
        self._page = int(prefixes.lengths.max())
        shape = (geometry.kv_heads, self._page + suffix, geometry.head_dim)
        page_bytes = 2 * like.element_size() * prod(shape)
        self._at_once = max(1, _CACHED_BYTES // page_bytes) if like.device.type == "cpu" else pairs
        self._at_once = min(self._at_once, pairs)
        self._keys, self._values = (like.new_empty(self._at_once, *shape) for _ in range(2))

    def join(self, index: int, keys: Tensor, values: Tensor) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Some pairs after the other: keys and values of layer `index` of the pages, then of the suffixes.

        Both are (pairs, kv_heads, longest page + suffix, head_dim). What is yielded is overwritten by the
        next. Of one page for all suffixes the memory is written once.
        """
        pages, page = self._prefixes.lengths.shape[0], self._page
        keys, values = (part.expand(self._pairs, -1, -1, -1) for part in (keys, values))
        for start in range(0, self._pairs, self._at_once):
            pairs = slice(start, min(start + self._at_once, self._pairs))
            joined = (self._keys[: pairs.stop - start], self._values[: pairs.stop - start])
            if pages == self._pairs:
                self._prefixes.fill(index, *(part[:, :, :page] for part in joined), start=start)
            elif start == 0:
                self._prefixes.fill(index, *(part[:1, :, :page] for part in joined))
                for part in joined:
                    part[1:, :, :page] = part[:1, :, :page]
            for part, own in zip(joined, (keys, values), strict=True):
                part[:, :, page:] = own[pairs]
            yield pairs, *joined


_WORDS_AT_ONCE = 8192


def mean_state(states: Tensor, query_tokens: Sequence[Sequence[int]]) -> Tensor:
    """Average over each query's tokens, float32 (pairs, width); without any, the position before."""
    lengths = torch.tensor([len(ids) for ids in query_tokens], device=states.device)
    position = torch.arange(states.shape[1], device=states.device)
    counted = (position < lengths[:, None]) & ((position > 0) | (lengths[:, None] == 1))
    weights = (counted / counted.sum(dim=1, keepdim=True)).expand(len(states), -1)
    return torch.einsum("pnw,pn->pw", states.float(), weights)


def mean_log_probability(
    states: Tensor,
    query_tokens: Sequence[Sequence[int]],
    *,
    norm: Callable[[Tensor], Tensor],
    unembedding: Tensor,
) -> Tensor:
    """log p(query | page) per token, float32 (pairs,), from last-layer states (pairs, positions, width).

    The mean, not the sum: a fit should not count a long query for more. The state at a position predicts the
    token after it.
    """
    tokens = [query_tokens[pair if len(query_tokens) > 1 else 0][1:] for pair in range(len(states))]
    lengths = [len(pair_tokens) for pair_tokens in tokens]
    normed = torch.cat(
        [norm(hidden[:length]).float() for hidden, length in zip(states, lengths, strict=True)]
    )
    next_tokens = torch.tensor([token for pair in tokens for token in pair], device=states.device)
    logits = (normed * unembedding[next_tokens].float()).sum(dim=1)
    # A whole vocabulary in float32 is gigabytes for a large model; a part of it at a time is not.
    total = torch.full((len(normed),), -torch.inf, device=normed.device)
    for words in torch.split(unembedding, _WORDS_AT_ONCE):
        total = torch.logaddexp(total, (normed @ words.float().t()).logsumexp(dim=1))
    return torch.stack([part.mean() for part in torch.split(logits - total, lengths)])


_PRODUCTS = {F.linear, F.conv3d, torch.mm, torch.addmm}
_LEAST_ROWS = 32  # a product of fewer rows costs less than converting its matrix


def bf16_on_cpu(device: torch.device, dtype: torch.dtype) -> AbstractContextManager[object]:
    """Take large half-precision products in float32 inside the `with`, where this machine gains by it."""
    if device.type != "cpu" or dtype == torch.float32 or _has_units(dtype):
        return nullcontext()
    return _Widened()


def computes_bf16(device: torch.device) -> bool:
    """Whether products in bfloat16 are faster here than in float32."""
    return device.type == "cuda" or (device.type == "cpu" and _has_units(torch.bfloat16))


def _has_units(dtype: torch.dtype) -> bool:
    supported = {
        torch.bfloat16: torch.ops.mkldnn._is_mkldnn_bf16_supported,
        torch.float16: torch.ops.mkldnn._is_mkldnn_fp16_supported,
    }
    return dtype in supported and bool(supported[dtype]())


class _Widened(TorchFunctionMode):
    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 (whatever the function gives)
        options = dict(kwargs or {})
        if func not in _PRODUCTS:
            return func(*args, **options)
        first: Tensor = next(each for each in args if each.dim() > 1)  # a bias may stand before it
        if first.dtype == torch.float32 or first.numel() < _LEAST_ROWS * first.shape[-1]:
            return func(*args, **options)
        out = options.pop("out", None)
        product: Tensor = func(*map(_widen, args), **{name: _widen(value) for name, value in options.items()})
        return product.to(first.dtype) if out is None else out.copy_(product)


def _widen(value: Any) -> Any:  # noqa: ANN401 (a tensor, or anything else)
    return value.float() if isinstance(value, Tensor) and value.is_floating_point() else value
