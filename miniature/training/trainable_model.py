"""A model that learns, with all that its prompts and pages are made by; and what all designs share.

What is chosen here is what makes learning short on two cores: a vocabulary of whole words, rotary frequencies
that suit a grid of 12 x 16 cells, and first weights (`initial_weights.py`) that already look to the left and
already match equal words.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from PIL.Image import Image
from transformers import (
    BaseImageProcessor,
    Glm4vForConditionalGeneration,
    PreTrainedTokenizerFast,
    Qwen2_5_VLForConditionalGeneration,
)

from miniature.draw import draw_document
from miniature.vocabulary import ENTITIES, FIELDS, MEASURES, SUBJECTS, YEARS
from miniature.world import HEIGHT_PIXELS, WIDTH_PIXELS, PlannedPage
from ridgerank.backbones.vision import GridBackbone
from ridgerank.documents.pdf import PdfReader

VisionLanguageModel: TypeAlias = Qwen2_5_VLForConditionalGeneration | Glm4vForConditionalGeneration

LAYERS, WIDTH, HEADS = 8, 192, 4
SECTIONS = (14, 5, 5)
"""Rotary frequencies of a head that turn with time, row and column."""
SLOWEST, FASTEST = 0.02, 1.2
"""Radians a position: time turns slowly and so carries content, columns turn fast."""


@dataclass(frozen=True, slots=True, eq=False)
class TrainableModel:
    """A model in the making."""

    model: VisionLanguageModel
    tokenizer: PreTrainedTokenizerFast
    image_processor: BaseImageProcessor
    backbone: type[GridBackbone]
    """The family whose prompt it is taught with."""


def decoder_settings(tokenizer: PreTrainedTokenizerFast, layers: int) -> dict[str, Any]:
    """The text configuration of either family."""
    frequencies = sum(SECTIONS)
    spread = (SLOWEST / FASTEST) ** (frequencies / (frequencies - 1))
    return {
        "hidden_size": WIDTH,
        "intermediate_size": 2 * WIDTH,
        "num_hidden_layers": layers,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "vocab_size": len(tokenizer),
        "max_position_embeddings": 4096,
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": None,
        "eos_token_id": tokenizer.eos_token_id,
        # Rising frequencies: theta below 1, slowed down as a whole.
        "rope_parameters": {
            "rope_type": "linear",
            "rope_theta": spread,
            "factor": 1 / SLOWEST,
            "mrope_section": list(SECTIONS),
        },
    }


def image_settings() -> dict[str, Any]:
    """An image processor at the size of a drawn page; white paper is zero, so that ink is all there is."""
    return {
        "size": {"shortest_edge": 28 * 28, "longest_edge": WIDTH_PIXELS * HEIGHT_PIXELS},
        "temporal_patch_size": 1,
        "image_mean": [1.0, 1.0, 1.0],
        "image_std": [0.5, 0.5, 0.5],
    }


def word_kinds(tokenizer: PreTrainedTokenizerFast) -> Sequence[Sequence[int]]:
    """Tokens of the words that questions join, kind by kind."""
    ids = tokenizer.convert_tokens_to_ids
    return [ids(list(kind)) for kind in (ENTITIES, MEASURES, (*FIELDS, *YEARS), SUBJECTS)]


def render(pages: Sequence[PlannedPage]) -> list[Image]:
    """An RGB image of each page, 336 x 448 pixels; many at once cost less than one at a time."""
    with tempfile.TemporaryDirectory() as folder, PdfReader() as reader:
        path = Path(folder) / "pages.pdf"
        path.write_bytes(draw_document(pages))
        return [
            reader.read(path, number, max_pixels=WIDTH_PIXELS * HEIGHT_PIXELS)[0]
            for number in range(1, len(pages) + 1)
        ]
