"""Idefics3 and SmolVLM: a Llama decoder with one rotary axis, the page cut into square tiles.

The processor's own tiling is kept (small models read small print only that way): tiles row by row, then the
whole page once more, shrunk. Each tile is a square of visual positions; the grid stacks the tiles below
each other, so that neighbours in the grid are neighbours on the page except across a tile's edge.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import isqrt

import numpy as np
import torch
from PIL.Image import Image
from transformers import (
    BaseImageProcessor,
    Idefics3ForConditionalGeneration,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    SmolVLMForConditionalGeneration,
)
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
from transformers.models.smolvlm.image_processing_pil_smolvlm import SmolVLMImageProcessorPil

from ridgerank.backbones.base import PageTokens, Regions, cells
from ridgerank.backbones.decoder import Decoder, rotate_halves
from ridgerank.backbones.model_settings import Preset
from ridgerank.backbones.prompt import INSTRUCTION, Prompt
from ridgerank.backbones.vision import VisualBackbone
from ridgerank.errors import BackboneError
from ridgerank.page_sizing import EdgeSizing

_TILE_START = "<fake_token_around_image>"
_IDEFICS3_PROMPT = Prompt(
    before_page="<|begin_of_text|>User:",
    after_page=_TILE_START,
    instruction=INSTRUCTION,
    after_query="<end_of_utterance>\nAssistant:",
    answers=(" yes", " no"),
)
_SMOLVLM_PROMPT = replace(_IDEFICS3_PROMPT, before_page="<|im_start|>User:")


class Idefics3(VisualBackbone):
    """Idefics3-8B-Llama3."""

    prompt = _IDEFICS3_PROMPT
    model_class = Idefics3ForConditionalGeneration
    image_processor_class = Idefics3ImageProcessorPil
    default_max_pixels = None

    def __init__(
        self,
        name: str,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerFast,
        image_processor: BaseImageProcessor,
        preset: Preset | None = None,
    ) -> None:
        """Take a model; the first SmolVLMs were published as this class, and their tokenizer tells them."""
        control = {token.content for token in tokenizer.backend_tokenizer.get_added_tokens_decoder().values()}
        if "<|begin_of_text|>" not in control:
            self.prompt = _SMOLVLM_PROMPT
        super().__init__(name, model, tokenizer, image_processor, preset)

    @classmethod
    def pixel_budget(cls, image_processor: BaseImageProcessor) -> int:
        """The pixel budget: the square of the longest edge a page is scaled to."""
        return int(image_processor.size["longest_edge"]) ** 2

    @classmethod
    def page_sizing(cls, image_processor: BaseImageProcessor) -> EdgeSizing:
        """The first of the processor's resizes, which sets the longest edge; cutting tiles stays its own."""
        return EdgeSizing(
            max_pixels=cls.pixel_budget(image_processor),
            resample=int(image_processor.resample),
            longest_edge=int(image_processor.size["longest_edge"]),
        )

    @classmethod
    def limit_pixels(cls, image_processor: BaseImageProcessor, max_pixels: int) -> None:
        """Set the longest edge to the side of a square of that many pixels."""
        image_processor.size = image_processor.size | {"longest_edge": isqrt(max_pixels)}

    def regions(self, grid: tuple[int, int], aspect: float) -> Regions:
        """Where the visual positions of a grid lie: those of the tiles, then of the page seen whole."""
        return tiled(grid, aspect)

    def _text_model(self) -> PreTrainedModel:
        return self._model.model.text_model

    def _tokenize_pages(self, images: Sequence[Image]) -> list[PageTokens]:
        batch = self._process([[image] for image in images], return_row_col_info=True)
        features = self._model.model.get_image_features(
            batch["pixel_values"].to(self.device), batch["pixel_attention_mask"].to(self.device)
        ).pooler_output
        side = isqrt(self._model.model.image_seq_len)
        pages = []
        for page_features, (rows,), (columns,) in zip(features, batch["rows"], batch["cols"], strict=True):
            text = image_text(rows, columns, side * side)
            ids = torch.tensor(self.tokens.image_page(text), device=self.device)
            visual = ids == self._model.config.image_token_id
            positions = torch.arange(len(ids), device=self.device)[None]
            grid = ((rows * columns + 1) * side, side)
            pages.append(PageTokens(ids, visual, page_features, positions, grid))
        return pages

    def _build_decoder(self) -> Decoder:
        text = self._text_model()
        if text.config.model_type != "llama":
            raise BackboneError(
                f"{self.name} has a {text.config.model_type!r} decoder; only 'llama' is supported"
            )
        return Decoder(self._take_block, self.geometry, rotary=text.rotary_emb, rotate=rotate_halves)


class SmolVLM(Idefics3):
    """SmolVLM2 and later, the choice for a laptop."""

    prompt = _SMOLVLM_PROMPT
    model_class = SmolVLMForConditionalGeneration
    image_processor_class = SmolVLMImageProcessorPil


def tiled(grid: tuple[int, int], aspect: float) -> Regions:
    """A page cut into square tiles row by row, then seen whole: a grid of tiles stacked below each other.

    `grid` is ((tiles + 1) x side, side). How many tiles stand in a row is not in it; the longer side of a
    page is cut into a fixed number, and among the ways to lay out so many tiles the one nearest to `aspect`
    (width over height) is then the right one.
    """
    side = grid[1]
    count = grid[0] // side - 1
    within = cells(side, side)
    if count == 0:
        return within
    columns = min(
        (number for number in range(1, count + 1) if count % number == 0),
        key=lambda number: abs(np.log(number**2 / count / aspect)),
    )
    rows = count // columns
    corners = cells(rows, columns)[:, :2]
    small = within / np.array([columns, rows, columns, rows])
    tiles = small[None] + np.tile(corners, 2)[:, None]
    return np.concatenate([tiles.reshape(-1, 4), within])


def image_text(rows: int, columns: int, positions: int) -> str:
    """Write the text that stands for a page of rows x columns tiles, up to the token that closes the last."""
    tile = "<image>" * positions
    text = ""
    for row in range(1, rows + 1):
        for column in range(1, columns + 1):
            text += f"{_TILE_START}<row_{row}_col_{column}>{tile}"
        text += "\n"
    if rows:
        text += "\n"
    return f"{text}{_TILE_START}<global-img>{tile}"
