"""From the prefix the model computed to the one that is stored: fewer positions, int8 numbers."""

import numpy as np
import torch
from PIL.Image import Image

from ridgerank.backbones.prefix import Prefix
from ridgerank.store.layout import PackedPrefix
from ridgerank.store.pruning import Keep, PageFeatures
from ridgerank.store.quantize import quantize_keys, quantize_values


def compress(prefix: Prefix, image: Image, keep: Keep) -> PackedPrefix:
    """Keep a fraction of the visual positions, and all others, in int8."""
    visual = prefix.visual.cpu().numpy()
    last_values = prefix.values[-1].float().cpu()  # (kv_heads, positions, head_dim)
    page = PageFeatures(
        grid=prefix.grid,
        grey=np.asarray(image.convert("L")),
        features=last_values.transpose(0, 1).flatten(1).numpy()[visual],
        pieces=prefix.pieces,
        value_norms=_mean_norms(prefix.values)[visual],
        value_distances=_mean_norms(prefix.values - _mean_value(prefix))[visual],
    )
    positions = keep.positions(visual, page)
    kept = torch.from_numpy(positions).to(prefix.keys.device)
    keys, key_scales = quantize_keys(prefix.keys.index_select(2, kept))
    values, value_scales = quantize_values(prefix.values.index_select(2, kept))
    return PackedPrefix(
        keys=keys.cpu().numpy(),
        values=values.cpu().numpy(),
        key_scales=_bits(key_scales.squeeze(-2)),
        value_scales=_bits(value_scales.squeeze(-1)),
        positions=positions,
        visual=visual[positions],
        next_position=prefix.next_position,
        grid=prefix.grid,
    )


def _bits(scales: torch.Tensor) -> np.ndarray[tuple[int, ...], np.dtype[np.uint16]]:
    """The bits of bfloat16 scales, as numpy has no such type."""
    return scales.contiguous().cpu().view(torch.uint16).numpy()


def _mean_norms(vectors: torch.Tensor) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """(positions,) norms of (layers, kv_heads, positions, head_dim), averaged over layers and heads."""
    norms: np.ndarray[tuple[int], np.dtype[np.float32]] = (
        vectors.float().norm(dim=-1).mean(dim=(0, 1)).cpu().numpy()
    )
    return norms


def _mean_value(prefix: Prefix) -> torch.Tensor:
    """(layers, kv_heads, 1, head_dim): the mean value vector of the visual positions."""
    return prefix.values[:, :, prefix.visual].mean(dim=2, keepdim=True)
