"""From the prefix the model computed to the one that is stored: fewer positions, fewer bits."""

from typing import Any

import numpy as np
import torch
from PIL import Image

from ridgerank.backbones.base import Backbone
from ridgerank.backbones.prefix import Prefix
from ridgerank.errors import StoreError
from ridgerank.store.bit_packing import pack_codes
from ridgerank.store.layout import PackedPrefix, SharedPrefix
from ridgerank.store.number_format import PAPER_NUMBERS, NumberFormat
from ridgerank.store.pruning import Keep, PageFeatures
from ridgerank.store.quantize import quantize_groups, quantize_keys, quantize_values

_BLANK_SIDE = 112
"""Pixels: the page that is read only for what stands before it."""


def compress(
    prefix: Prefix,
    image: Image.Image,
    keep: Keep,
    numbers: NumberFormat = PAPER_NUMBERS,
    shared: SharedPrefix | None = None,
) -> PackedPrefix:
    """Keep a fraction of the visual positions, and all others but those in `shared`, in these numbers."""
    visual = prefix.visual.cpu().numpy()
    positions = keep.positions(visual, _page_features(prefix, image, keep.rule))
    if shared is not None:
        if visual[: shared.count].any():
            raise StoreError(f"a page that starts before position {shared.count}, where the prompt still is")
        positions = positions[shared.count :]
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


def encode_shared(
    backbone: Backbone, numbers: NumberFormat, *, exit_layer: int, join_layer: int
) -> SharedPrefix | None:
    """Keys and values of the positions before the page; None where pages are stored with them."""
    count = backbone.tokens.count_before_page()
    if numbers.symmetric or not count:
        return None
    blank = "blank" if backbone.reads_text else Image.new("RGB", (_BLANK_SIDE, _BLANK_SIDE), "white")
    [prefix] = backbone.encode([blank], exit_layer=exit_layer, join_layer=join_layer)
    keys, values = (part[:, :, :count].float().cpu().contiguous() for part in (prefix.keys, prefix.values))
    return SharedPrefix(keys.numpy(), values.numpy())


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


def _page_features(prefix: Prefix, image: Image.Image, rule: str) -> PageFeatures:
    """What `rule` chooses by; what only other rules need is not computed."""
    by_values = rule in ("spread", "value-norm", "value-distance")
    values = prefix.values[:, :, prefix.visual] if by_values else prefix.values
    return PageFeatures(
        grid=prefix.grid,
        grey=np.asarray(image.convert("L")) if rule == "ink" else np.empty((0, 0)),
        features=layer_features(values) if rule == "spread" else np.empty((0, 0)),
        pieces=prefix.pieces,
        value_norms=average_norms(values) if rule == "value-norm" else None,
        value_distances=average_distances(values) if rule == "value-distance" else None,
    )


def layer_features(values: torch.Tensor) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """(positions, kv_heads x head_dim): the values of the last layer."""
    features: np.ndarray[tuple[int, ...], np.dtype[np.float32]] = (
        values[-1].float().cpu().transpose(0, 1).flatten(1).numpy()
    )
    return features


def average_norms(vectors: torch.Tensor) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """(positions,) norms of (layers, kv_heads, positions, head_dim), averaged over layers and heads."""
    norms: np.ndarray[tuple[int], np.dtype[np.float32]] = (
        vectors.float().norm(dim=-1).mean(dim=(0, 1)).cpu().numpy()
    )
    return norms


def average_distances(vectors: torch.Tensor) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """(positions,) distances to the mean over positions, averaged as norms are; there may be no position."""
    return average_norms(vectors - vectors.mean(dim=2, keepdim=True) if vectors.shape[2] else vectors)
