"""What is checked when a model is loaded: that files, family and prompt belong together.

Each of these would otherwise show only as scores that mean nothing.
"""

import logging
import re
from collections.abc import Collection

from tokenizers import Tokenizer
from transformers import PreTrainedModel

from ridgerank.backbones.prompt import Prompt
from ridgerank.errors import BackboneError

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
