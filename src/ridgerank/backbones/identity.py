"""What identifies a model, and whether its files belong together.

Digests of weights, image processor and tokenizer go into a lineage. The checks run when a model is loaded:
each failure would otherwise show only as scores that mean nothing.
"""

import hashlib
import logging
import re
from collections.abc import Collection
from dataclasses import dataclass

import torch
from tokenizers import Tokenizer
from transformers import BaseImageProcessor, PreTrainedModel, PreTrainedTokenizerFast

from ridgerank.backbones.prompt import Prompt
from ridgerank.errors import BackboneError
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


logger = logging.getLogger(__name__)
_MARK = re.compile(r"<[^<>\s]+>|\[gMASK\]")
"""How control tokens are written in a prompt."""


def require_rotation(name: str, text_model: PreTrainedModel, *, head_dim: int, share: float) -> None:
    """Refuse a decoder that turns other channels of a head by position than its sections say.

    Sections are how many pairs of channels each axis of a position turns. Where none were read, the decoder
    has to turn the share of each head that its family is known to turn.
    """
    turned = 2 * text_model.rotary_emb.inv_freq.numel()
    sections = (text_model.config.rope_parameters or {}).get("mrope_section")
    expected = round(head_dim * share) if sections is None else 2 * sum(sections)
    if turned != expected:
        source = "its family" if sections is None else f"sections of {list(sections)}"
        raise BackboneError(
            f"{name} turns {turned} of the {head_dim} channels of a head by position, {source} would turn "
            f"{expected}; the rotary settings of its configuration were not read, or are of another model"
        )


def require_control_tokens(name: str, prompt: Prompt, tokenizer: Tokenizer) -> None:
    """Refuse a tokenizer that would spell out a control token of the prompt."""
    text = prompt.before_page + prompt.after_page + prompt.after_query
    known = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    unknown = [mark for mark in _MARK.findall(text) if mark not in known]
    if unknown:
        raise BackboneError(
            f"the tokenizer of {name} has no token {unknown[0]!r}, which the prompt of its family needs; is "
            "tokenizer_config.json missing beside tokenizer.json?"
        )


def require_image_token(name: str, ids: Collection[int], image_token_id: int) -> None:
    """Refuse a tokenizer whose token for a visual position is not the one the model looks for."""
    if list(ids).count(image_token_id) != 1:
        raise BackboneError(
            f"the tokens of a page of {name} hold the image token {image_token_id} of its configuration "
            f"{list(ids).count(image_token_id)} times, wanted once per visual position; tokenizer and "
            "configuration are not of one model"
        )


def require_answer_rows(name: str, answers: Collection[int], vocabulary: int) -> None:
    """Refuse answers that are one token, or that the unembedding has no row for."""
    if answers and (len(set(answers)) != len(answers) or max(answers) >= vocabulary):
        raise BackboneError(
            f"the answers of {name} are the tokens {tuple(answers)} of a vocabulary of {vocabulary}; wanted "
            "two different ones inside it"
        )


def report_unused_tensors(name: str, unused: Collection[str], *, missing: Collection[str]) -> None:
    """Refuse a checkpoint that lacks tensors, and say which of its tensors the model has no use for."""
    if missing:
        raise BackboneError(
            f"the weights of {name} lack {sorted(missing)[0]} ({len(missing)} tensors in all), which would "
            "be drawn at random; download the model again, or give the configuration that goes with it"
        )
    if unused:
        logger.warning("%s: %d tensors were not used, such as %s", name, len(unused), sorted(unused)[0])
