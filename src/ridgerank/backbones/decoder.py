"""The decoder's layers, run by hand: the page part once, then only the query over what was stored.

The modules are the model's own; the loop is ours, because the library's forward cannot stop at a layer,
start from dropped positions, share the suffix between pages, or do the last layer for one position only.
Families differ in names, in extra norms and in the rotation; a `Block` and `rotate` hold all of that.
This module knows no tokens and no images.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (its usual name)
from transformers.models.llama.modeling_llama import rotate_half

from ridgerank.backbones.attention import watch
from ridgerank.backbones.joined_pages import JoinedPages
from ridgerank.backbones.prefix import Geometry, PrefixBatch

Norm = Callable[[Tensor], Tensor]
Rotary = tuple[Tensor, Tensor]
"""Cosines and sines, (batch, positions, rotary_dim) each."""
_MLP_ROWS = 2048
"""Positions that go through an MLP at once: its width is several times the model's, and so is its memory."""


@dataclass(frozen=True, slots=True, eq=False)
class Affine:
    """x ↦ x Wᵀ + b."""

    weight: Tensor
    bias: Tensor | None = None

    @classmethod
    def of(cls, linear: nn.Linear) -> Self:
        """The parameters of a linear module, shared with it."""
        return cls(linear.weight, linear.bias)


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """One decoder layer's parts under one set of names."""

    attention_norm: Norm
    query: Affine
    key: Affine
    value: Affine
    output: Affine
    mlp_norm: Norm
    gate: Affine
    up: Affine
    down: Affine
    query_norm: Norm | None = None
    key_norm: Norm | None = None
    """Applied to each head before the rotation, where the family has them."""
    output_norm: Norm | None = None
    """Applied to what attention adds, where the family has one."""
    down_norm: Norm | None = None
    """Applied to what the MLP adds, where the family has one."""


def rotate_halves(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn the two halves of each head against each other, as most decoders since Llama."""
    turned: Tensor = x * cos + rotate_half(x) * sin
    return turned


def llama_block(layer: Any) -> Block:  # noqa: ANN401 (whatever has a Llama layer's names)
    """A layer whose parts have the names Llama gave them, as most decoders since."""
    attention, mlp = layer.self_attn, layer.mlp
    return Block(
        attention_norm=layer.input_layernorm,
        query=Affine.of(attention.q_proj),
        key=Affine.of(attention.k_proj),
        value=Affine.of(attention.v_proj),
        output=Affine.of(attention.o_proj),
        mlp_norm=layer.post_attention_layernorm,
        gate=Affine.of(mlp.gate_proj),
        up=Affine.of(mlp.up_proj),
        down=Affine.of(mlp.down_proj),
        query_norm=getattr(attention, "q_norm", None),
        key_norm=getattr(attention, "k_norm", None),
    )


@dataclass(frozen=True, slots=True, eq=False)
class AddedFeatures:
    """What a vision tower adds to the states behind the first layers (DeepStack)."""

    visual: Tensor
    """(pages, positions) bool: where it is added."""
    layers: tuple[Tensor, ...] = ()
    """(visual positions of all pages, width), for layer 0, 1, ...; empty for most families."""

    def add(self, hidden: Tensor, index: int) -> None:
        """Add the features that follow layer `index` to `hidden`, in place."""
        if index < len(self.layers):
            hidden[self.visual] += self.layers[index].to(hidden.dtype)


class Scratch:
    """Memory reused from layer to layer; fresh pages for every product cost a CPU a fifth of the pass."""

    def __init__(self, like: Tensor) -> None:
        self._like = like
        self._buffers: dict[str, Tensor] = {}

    def empty(self, name: str, *shape: int) -> Tensor:
        """Uninitialised memory; the next call with this name takes it back."""
        size = prod(shape)
        buffer = self._buffers.get(name)
        if buffer is None or buffer.numel() < size:
            buffer = self._buffers[name] = self._like.new_empty(size)
        return buffer[:size].view(shape)

    def linear(self, name: str, x: Tensor, affine: Affine) -> Tensor:
        """(..., in) -> (..., out), in the memory called `name`."""
        rows = x.reshape(-1, x.shape[-1])
        out = self.empty(name, rows.shape[0], affine.weight.shape[0])
        if affine.bias is None:
            torch.mm(rows, affine.weight.t(), out=out)
        else:
            torch.addmm(affine.bias, rows, affine.weight.t(), out=out)
        return out.view(*x.shape[:-1], -1)


class Decoder:
    """A stack of blocks with the family's rotation."""

    def __init__(
        self,
        blocks: Sequence[Block],
        geometry: Geometry,
        *,
        rotary: Callable[[Tensor, Tensor], Rotary],
        rotate: Callable[[Tensor, Tensor, Tensor], Tensor],
    ) -> None:
        """`rotary(like, positions)` gives cosines and sines; `rotate(x, cos, sin)` turns queries or keys."""
        self._blocks = blocks
        self._geometry = geometry
        self._rotary = rotary
        self._rotate = rotate
        self._groups = geometry.query_heads // geometry.kv_heads

    def prefill(
        self,
        hidden: Tensor,
        positions: Tensor,
        *,
        join_layer: int,
        exit_layer: int,
        added: AddedFeatures | None = None,
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Rotated keys and values of layers [join_layer, exit_layer), (pages, kv_heads, positions, head_dim).

        `hidden` is (pages, positions, width), padded on the right: a causal decoder never looks there.
        It is overwritten, and so is what is yielded, by the next layer. Of the last layer only keys and
        values are computed.
        """
        cos, sin = (part.unsqueeze(1) for part in self._rotary(hidden, positions))
        scratch = Scratch(hidden)
        for index, block in enumerate(self._blocks[:exit_layer]):
            normed = block.attention_norm(hidden)
            keys = self._rotate(self._keys(block, normed, scratch), cos, sin)
            values = self._heads(scratch.linear("value", normed, block.value))
            if index >= join_layer:
                yield keys, values
            if index == exit_layer - 1:
                break
            queries = self._rotate(self._queries(block, normed, scratch), cos, sin)
            attended = F.scaled_dot_product_attention(
                queries, keys, values, is_causal=True, enable_gqa=self._groups > 1
            )
            self._finish(block, hidden, attended.transpose(1, 2).flatten(2), scratch)
            if added is not None:
                added.add(hidden, index)

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
        is for suffix owners[i]. A suffix over many pages stays one row until the first attention that can
        tell the pages apart.

        A list given as `attention` is filled, layer by layer, with what the last position attended to,
        (pairs, longest page + positions), averaged over heads; without `lengths` with what each attended to,
        (pairs, positions, longest page + positions).
        """
        scratch = Scratch(hidden)
        hidden = self._alone(hidden.clone(), prefixes.join_layer, scratch)
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

        for index in range(prefixes.join_layer, prefixes.exit_layer):
            block = self._blocks[index]
            normed = block.attention_norm(hidden)
            # Where a suffix is still one row, these products are made once, for all its pages.
            keys = self._keys(block, normed, scratch)
            values = self._heads(scratch.linear("value", normed, block.value))
            if owners is not None:
                keys, values, hidden, normed = (part[owners] for part in (keys, values, hidden, normed))
                owners = None
            keys = self._rotate(keys, cos, sin)
            hidden = hidden.expand(pairs, -1, -1).contiguous()
            if last is not None and index == prefixes.exit_layer - 1:  # no other position's output is read
                hidden = hidden[row, last].unsqueeze(1)
                normed = normed.expand(pairs, -1, -1)[row, last].unsqueeze(1)
                cos, sin = (part[row, :, last].unsqueeze(2) for part in (cos, sin))
                mask = mask[row, :, last].unsqueeze(2).expand(-1, -1, self._groups, -1)
            queries = self._rotate(self._queries(block, normed, scratch), cos, sin)
            attended, watched = [], []
            for joined in joined_pages.join(index, keys, values):
                asking, visible = queries[joined.pairs], mask[joined.pairs]
                attended.append(self._attend(asking, joined.keys, joined.values, visible))
                if attention is not None:
                    place = None if last is None else last[joined.pairs]
                    watched.append(watch(asking, joined.keys, visible[:, 0], place))
            if attention is not None:
                attention.append(torch.cat(watched))
            self._finish(block, hidden, torch.cat(attended), scratch)
        return hidden if last is None else hidden[:, 0]

    def _alone(self, hidden: Tensor, join_layer: int, scratch: Scratch) -> Tensor:
        """Run the layers below the band: the suffix sees itself only, so where it starts is immaterial."""
        if join_layer == 0:
            return hidden
        positions = torch.arange(hidden.shape[1], device=hidden.device)[None]
        cos, sin = (part.unsqueeze(1) for part in self._rotary(hidden, positions))
        no_page = torch.ones(1, 0, dtype=torch.bool, device=hidden.device)
        mask = self._mask(no_page, hidden.shape[1], hidden)
        for block in self._blocks[:join_layer]:
            normed = block.attention_norm(hidden)
            queries = self._queries(block, normed, scratch)
            keys = self._keys(block, normed, scratch)
            values = self._heads(scratch.linear("value", normed, block.value))
            rotated = self._rotate(queries, cos, sin), self._rotate(keys, cos, sin)
            self._finish(block, hidden, self._attend(*rotated, values, mask), scratch)
        return hidden

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
        """(pairs, positions, query_heads x head_dim).

        The query heads that share a key head are laid behind each other as positions: the same numbers as
        with repeated keys, nothing repeated, and any kernel takes it.
        """
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
            gate = F.silu(scratch.linear("gate", normed, block.gate), inplace=True)
            gate.mul_(scratch.linear("up", normed, block.up))
            added = scratch.linear("added", gate, block.down)
            rows.add_(block.down_norm(added) if block.down_norm else added)

    def _queries(self, block: Block, normed: Tensor, scratch: Scratch) -> Tensor:
        queries = self._heads(scratch.linear("query", normed, block.query))
        return block.query_norm(queries) if block.query_norm else queries

    def _keys(self, block: Block, normed: Tensor, scratch: Scratch) -> Tensor:
        keys = self._heads(scratch.linear("key", normed, block.key))
        return block.key_norm(keys) if block.key_norm else keys

    def _heads(self, x: Tensor) -> Tensor:
        """(batch, positions, heads x head_dim) -> (batch, heads, positions, head_dim)."""
        return x.view(*x.shape[:2], -1, self._geometry.head_dim).transpose(1, 2)
