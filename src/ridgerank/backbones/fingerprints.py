"""Digests of what a prefix depends on: weights, image processor, tokenizer."""

import hashlib
from dataclasses import dataclass

import torch
from transformers import BaseImageProcessor, PreTrainedTokenizerFast

from ridgerank.lineage import fingerprint

_SAMPLES = 4096
"""Values read of each tensor: fine-tuning moves nearly all of them, and nine billion weights take seconds."""


@dataclass(frozen=True, slots=True)
class Fingerprints:
    """What a prefix depends on, digested: 128 bits each, in hex."""

    weights: str
    """Names, shapes, dtypes and an even sample of every tensor."""
    processor: str
    """Everything that turns a page into tokens."""
    prompt: str
    """The prompt and its answer tokens."""


def fingerprint_weights(model: torch.nn.Module) -> str:
    """Digest every parameter's name, shape, dtype and evenly spaced values: 128 bits, in hex."""
    digest = hashlib.blake2b(digest_size=16)
    for name, parameter in sorted(model.named_parameters()):
        digest.update(f"{name} {tuple(parameter.shape)} {parameter.dtype}\n".encode())
        values = parameter.detach().flatten()
        sample = values[:: max(1, values.numel() // _SAMPLES)]
        digest.update(sample.contiguous().cpu().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def fingerprint_processor(image_processor: BaseImageProcessor, tokenizer: PreTrainedTokenizerFast) -> str:
    """Digest the image processor's settings and the whole tokenizer: 128 bits, in hex."""
    settings = {name: value for name, value in image_processor.to_dict().items() if value is not None}
    return fingerprint({"image": settings, "tokenizer": tokenizer.backend_tokenizer.to_str()})
