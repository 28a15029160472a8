"""What a page would be under compressions that are not built: rotated, merged, refitted, chosen otherwise.

Each trial takes an encoded page and gives the page that a store of that kind would give back, in floating
point. The positions before the page stay as they are: a store holds them once for all pages.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, partial
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (its usual name)

from ridgerank.backbones.base import Backbone
from ridgerank.backbones.dense_prefixes import DensePrefixes
from ridgerank.backbones.prefix import Prefix
from ridgerank.store.number_format import NumberFormat
from ridgerank.store.quantize import quantize_groups, restore_groups


@dataclass(frozen=True, slots=True)
class AttentionCall:
    """Queries (pairs, kv_heads, rows, dim) of one layer over a page and themselves, and what they saw."""

    queries: Tensor
    keys: Tensor
    values: Tensor
    mask: Tensor

    def logits(self, keys: Tensor) -> Tensor:
        """(pairs, kv_heads, rows, positions) over the page's keys, or others in their place."""
        logits: Tensor = self.queries @ keys.transpose(2, 3) / keys.shape[-1] ** 0.5 + self.mask
        return logits


class PageTrial:
    """An encoded page, and how reference queries attend to it."""

    def __init__(self, model: Backbone, prefix: Prefix, references: Sequence[str]) -> None:
        self.prefix = prefix
        self._model = model
        self._references = references
        self.visual = prefix.visual.nonzero()[:, 0]

    @cached_property
    def attended(self) -> list[list[AttentionCall]]:
        """Every attention of the reference queries over the whole page, by layer."""
        decoder, calls = self._model._decoder, []
        attend = decoder._attend

        def record(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
            grouped = queries.reshape(len(queries), keys.shape[1], -1, queries.shape[-1])
            calls.append(AttentionCall(grouped, keys.clone(), values.clone(), mask))
            return attend(queries, keys, values, mask)

        vars(decoder)["_attend"] = record
        try:
            for text in self._references:  # one at a time: one call a layer
                self._model.states([text], DensePrefixes([self.prefix]), state="mean")
        finally:
            del vars(decoder)["_attend"]
        layers = self.prefix.keys.shape[0]
        return [calls[layer::layers] for layer in range(layers)]

    @cached_property
    def value_norms(self) -> Tensor:
        """(visual positions,): the norm of the value vector, averaged over layers and heads."""
        norms: Tensor = self.prefix.values[:, :, self.visual].norm(dim=-1).mean(dim=(0, 1))
        return norms

    @cached_property
    def attention_by_norm(self) -> Tensor:
        """(visual positions,): attention received times the norm of the value it moves."""
        total = torch.zeros(len(self.visual))
        for values, calls in zip(self.prefix.values, self.attended, strict=True):
            for call in calls:
                weights = call.logits(call.keys).softmax(dim=-1).mean(dim=(0, 2))[:, self.visual]
                total += (weights * values[:, self.visual].norm(dim=-1)).mean(dim=0)
        return total

    @cached_property
    def distinct_values(self) -> Tensor:
        """(visual positions,): highest for the longest value vector, then for the least explained by those.

        Each next one has the longest part that is no combination of those before it: the pivots of a Cholesky
        factor of their products.
        """
        vectors = self.prefix.values[:, :, self.visual].permute(2, 0, 1, 3).flatten(1)
        products = vectors @ vectors.T
        squares = products.diagonal().clone()
        factor = torch.zeros_like(products)
        scores = torch.zeros(len(products))
        for step in range(len(products)):
            chosen = int(squares.argmax())
            scores[chosen] = len(products) - step
            column = products[:, chosen] - factor[:, :step] @ factor[chosen, :step]
            factor[:, step] = column / squares[chosen].clamp_min(1e-9).sqrt()
            squares = (squares - factor[:, step].square()).clamp_min(0)
            squares[scores > 0] = -1
        return scores

    def count(self, fraction: Fraction) -> int:
        """How many visual positions are kept."""
        return max(1, round(fraction * len(self.visual)))

    def choose(self, fraction: Fraction, scores: Tensor) -> Tensor:
        """Positions to keep: all that are not visual, and the visual ones of highest score."""
        best = self.visual[torch.argsort(-scores, stable=True)[: self.count(fraction)]]
        return torch.cat([(~self.prefix.visual).nonzero()[:, 0], best]).sort().values


def keep_highest(
    trial: PageTrial,
    fraction: Fraction,
    bits: str,
    *,
    by: Literal["value_norms", "attention_by_norm", "distinct_values"] = "value_norms",
    quantizer: "Quantizer | None" = None,
) -> Prefix:
    """As it is built, by the norm of values; or chosen by other scores, or in other numbers."""
    return _store(trial.prefix, trial.choose(fraction, getattr(trial, by)), bits, quantizer)


def keep_of_each(trial: PageTrial, fraction: Fraction, bits: str, *, head: bool) -> Prefix:
    """Every layer, or every head of every layer, keeps the positions of its own longest value vectors."""
    prefix = trial.prefix
    norms = prefix.values[:, :, trial.visual].norm(dim=-1)
    if not head:
        norms = norms.mean(dim=1, keepdim=True).expand_as(norms)
    best = trial.visual[norms.topk(trial.count(fraction), dim=-1).indices]
    others = (~prefix.visual).nonzero()[:, 0].expand(*norms.shape[:2], -1)
    kept = torch.cat([others, best], dim=-1).sort(dim=-1).values
    keys, values = (
        whole.gather(2, kept.unsqueeze(-1).expand(-1, -1, -1, whole.shape[-1]))
        for whole in (prefix.keys, prefix.values)
    )
    own = replace(prefix, keys=keys, values=values, visual=prefix.visual[kept[0, 0]])
    return _store(own, torch.arange(kept.shape[-1]), bits)


def drop_instruction(trial: PageTrial, fraction: Fraction, bits: str) -> Prefix:
    """Without the positions behind the page: they are its instruction, and have seen it."""
    kept = trial.choose(fraction, trial.value_norms)
    return _store(trial.prefix, kept[kept <= trial.visual[-1]], bits)


def merge(trial: PageTrial, fraction: Fraction, bits: str, *, by: str) -> Prefix:
    """Dropped positions join the kept one of most similar key, or the nearest on the page: the mean of all.

    A merged position weighs as much as all it stands for, which is a bias of log count on its logit; here it
    stands in the place of each of them, which comes to the same.
    """
    prefix = trial.prefix
    kept = trial.choose(fraction, trial.value_norms)
    centers = kept[prefix.visual[kept]]
    keys, values = prefix.keys.clone(), prefix.values.clone()
    cells = trial.visual - trial.visual[0]
    places = torch.stack([cells // prefix.grid[1], cells % prefix.grid[1]], dim=-1).float()
    of_centers = torch.isin(trial.visual, centers)
    nearest = torch.cdist(places, places[of_centers]).argmin(dim=1)
    for layer in range(keys.shape[0]):
        for head in range(keys.shape[1]):
            if by == "key":
                directions = F.normalize(prefix.keys[layer, head, trial.visual], dim=-1)
                group = (directions @ directions[of_centers].T).argmax(dim=1)
            else:
                group = nearest
            group = torch.where(of_centers, torch.cumsum(of_centers, 0) - 1, group)
            for whole, merged in ((prefix.keys, keys), (prefix.values, values)):
                members = whole[layer, head, trial.visual]
                sums = torch.zeros(len(centers), members.shape[-1]).index_add_(0, group, members)
                means = sums / torch.bincount(group, minlength=len(centers))[:, None]
                merged[layer, head, trial.visual] = means[group]
    everything = torch.arange(keys.shape[2])
    return _store(replace(prefix, keys=keys, values=values), everything, bits)


def refit_values(trial: PageTrial, fraction: Fraction, bits: str, *, penalty: float) -> Prefix:
    """Attention Matching: values by ridge, so that reference queries read what they read from the whole page.

    The penalty is relative to the mean square of an attention weight, and shrinks towards the value itself.
    """
    prefix = trial.prefix
    kept = trial.choose(fraction, trial.value_norms)
    first, whole = int(prefix.visual[kept].nonzero()[0]), prefix.keys.shape[2]
    stored = _store(prefix, kept, bits).keys
    values = prefix.values.clone()
    for layer, calls in enumerate(trial.attended):
        size, dim = len(kept) - first, values.shape[-1]
        gram, moment = (torch.zeros(values.shape[1], size, columns) for columns in (size, dim))
        for call in calls:
            suffix = torch.arange(whole, call.keys.shape[2])
            seen = torch.cat([kept, suffix])
            keys = call.keys.clone()
            keys[:, :, kept] = stored[layer]
            wanted = call.logits(call.keys).softmax(dim=-1) @ call.values
            weights = call.logits(keys)[..., seen].softmax(dim=-1)
            missing = (wanted - weights @ call.values[:, :, seen]).transpose(0, 1).flatten(1, 2)
            rows = weights[..., first : len(kept)].transpose(0, 1).flatten(1, 2)
            gram += rows.transpose(1, 2) @ rows
            moment += rows.transpose(1, 2) @ missing
        strength = penalty * gram.diagonal(dim1=1, dim2=2).mean(dim=-1)[:, None, None]
        change = torch.linalg.solve(gram + strength * torch.eye(size), moment)
        values[layer][:, kept[first:]] += change
    return _store(replace(prefix, values=values), kept, bits)


Quantizer = Callable[[Tensor, int, int], Tensor]
"""What numbers are after they were stored in so many bits, with steps shared along a dimension."""


def _store(prefix: Prefix, kept: Tensor, bits: str, quantizer: Quantizer | None = None) -> Prefix:
    """The page with these positions, in numbers of so many bits from the page's first position on."""
    numbers, visual = NumberFormat.parse(bits), prefix.visual[kept]
    assert numbers.group is None, f"{bits}: trials round without groups"
    first = int(visual.nonzero()[0])
    parts = []
    for whole, width, dim in ((prefix.keys, numbers.key_bits, -2), (prefix.values, numbers.value_bits, -1)):
        part = whole[:, :, kept].clone()
        part[:, :, first:] = (quantizer or round_as_built)(part[:, :, first:], width, dim)
        parts.append(part)
    return replace(prefix, keys=parts[0], values=parts[1], visual=visual)


def round_as_built(x: Tensor, bits: int, dim: int) -> Tensor:
    """One step for a whole key channel or value position."""
    codes = quantize_groups(x, bits=bits, dim=dim, group=None)
    restored = codes.codes.float()
    restore_groups(restored, codes.steps.float(), codes.minima.float(), dim=dim, group=None)
    return restored


def round_rotated(x: Tensor, bits: int, dim: int) -> Tensor:
    """Rotated before rounding, and back."""
    rotation = _hadamard(x.shape[-1])
    return round_as_built(x @ rotation, bits, dim) @ rotation.T


def round_clipped(x: Tensor, bits: int, dim: int) -> Tensor:
    """In the range of least squared error, which leaves out the largest numbers, instead of that of all."""
    middle = x.mean(dim=dim, keepdim=True)
    best, least = x, torch.full_like(middle, torch.inf)
    for share in (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3):
        low = middle + share * (x.amin(dim=dim, keepdim=True) - middle)
        high = middle + share * (x.amax(dim=dim, keepdim=True) - middle)
        step = ((high - low) / ((1 << bits) - 1)).clamp_min(1e-12)
        restored = low + step * ((x - low) / step).round().clamp(0, (1 << bits) - 1)
        error = (restored - x).square().sum(dim=dim, keepdim=True)
        best = torch.where(error < least, restored, best)
        least = torch.minimum(error, least)
    return best


def _hadamard(size: int) -> Tensor:
    """An orthogonal matrix of equal magnitudes, in blocks of the largest power of two that divides `size`."""
    block = size & -size
    matrix = torch.ones(1, 1)
    while len(matrix) < block:
        matrix = torch.cat([torch.cat([matrix, matrix], dim=1), torch.cat([matrix, -matrix], dim=1)])
    return torch.kron(torch.eye(size // block), matrix / block**0.5)


def _trials() -> dict[str, Callable[[PageTrial], Prefix]]:
    fifth, eighth, ninth = Fraction(1, 5), Fraction(1, 8), Fraction(1, 9)
    built: dict[str, Any] = {
        f"1/{share.denominator}, {bits}": partial(keep_highest, fraction=share, bits=bits)
        for share, bits in ((fifth, "3/2"), (fifth, "2"), (eighth, "3/2"), (ninth, "3/2"))
    }
    in_fifth, in_eighth = (partial(keep_highest, fraction=share, bits="3/2") for share in (fifth, eighth))
    return {
        **built,
        "1/5, 3/2, rotated": partial(in_fifth, quantizer=round_rotated),
        "1/5, 2, rotated": partial(in_fifth, bits="2", quantizer=round_rotated),
        "1/5, 3/2, clipped": partial(in_fifth, quantizer=round_clipped),
        "1/5, 2, clipped": partial(in_fifth, bits="2", quantizer=round_clipped),
        "1/5, 3/2, no instruction": partial(drop_instruction, fraction=fifth, bits="3/2"),
        "1/8, 3/2, by distinct values": partial(in_eighth, by="distinct_values"),
        "1/8, 3/2, by layer": partial(keep_of_each, fraction=eighth, bits="3/2", head=False),
        "1/8, 3/2, by head": partial(keep_of_each, fraction=eighth, bits="3/2", head=True),
        "1/9, 3/2, by attention": partial(keep_highest, fraction=ninth, bits="3/2", by="attention_by_norm"),
        "1/9, 3/2, merged by key": partial(merge, fraction=ninth, bits="3/2", by="key"),
        "1/9, 3/2, merged by place": partial(merge, fraction=ninth, bits="3/2", by="place"),
        "1/9, 3/2, refitted values": partial(refit_values, fraction=ninth, bits="3/2", penalty=1.0),
    }


TRIALS: Mapping[str, Callable[[PageTrial], Prefix]] = _trials()
"""The kept share of the visual positions by value norm, the bits of keys and values, and what is tried."""
