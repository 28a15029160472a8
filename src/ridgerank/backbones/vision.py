"""Families that look at a page's image: Qwen-VL, GLM-4V, whose positions have three axes, and Idefics3."""

import re
from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from math import isqrt
from types import MappingProxyType
from typing import ClassVar

import numpy as np
import torch
import transformers
from PIL.Image import Image
from torch import Tensor
from transformers import BaseImageProcessor, BatchFeature, PreTrainedModel, PreTrainedTokenizerFast
from transformers.models.glm4v.image_processing_pil_glm4v import Glm4vImageProcessorPil
from transformers.models.glm4v.modeling_glm4v import rotate_half_llm
from transformers.models.glm46v.image_processing_pil_glm46v import Glm46VImageProcessorPil
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.models.smolvlm.image_processing_pil_smolvlm import SmolVLMImageProcessorPil

from ridgerank.backbones.base import Backbone, PageTokens, Regions, cells, fingerprint_processor
from ridgerank.backbones.model_settings import Preset
from ridgerank.backbones.prompt import CHATML_CUE, CHATML_USER, INSTRUCTION, Prompt
from ridgerank.errors import BackboneError
from ridgerank.page_sizing import EdgeSizing, PageSizing, PatchSizing
from ridgerank.records import Page

_MARK = re.compile(r"<[^<>\s]+>|\[gMASK\]")


class VisualBackbone(Backbone):
    """A multimodal model; its prompt is the family's, or that of a preset."""

    model_class: ClassVar[type[PreTrainedModel]]
    image_processor_class: ClassVar[type[BaseImageProcessor]]
    default_max_pixels: ClassVar[int | None]
    """Pixel budget of a page unless the user says otherwise; `None` leaves the processor's own."""
    image_token: ClassVar[str] = ""
    """The text of one visual position, if a page is nothing but these."""
    former_names: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Patterns of parts' names in adapters of before, and what the parts are called now."""

    def __init__(
        self,
        name: str,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerFast,
        image_processor: BaseImageProcessor,
        preset: Preset | None = None,
    ) -> None:
        """Take a model in evaluation mode, its tokenizer, its PIL image processor, perhaps a preset."""
        control = {token.content for token in tokenizer.backend_tokenizer.get_added_tokens_decoder().values()}
        self.prompt = self.choose_prompt(control) if preset is None else preset.prompt
        if preset is not None and preset.ranking_head:
            self.ranking_head = model.score
        self._image_processor = image_processor
        self.page_budget = self.page_sizing(image_processor)
        self.max_pixels = self.page_budget.max_pixels
        text = self.prompt.before_page + self.prompt.after_page + self.prompt.after_query
        if unknown := [mark for mark in _MARK.findall(text) if mark not in control]:
            raise BackboneError(
                f"the tokenizer of {name} has no token {unknown[0]!r}, which the prompt of its family needs; "
                "is tokenizer_config.json missing beside tokenizer.json?"
            )
        super().__init__(name, model, tokenizer)
        image_id = model.config.image_token_id
        if self.image_token and self.tokens.image_page(self.image_token).count(image_id) != 1:
            raise BackboneError(
                f"a visual position of {name} is not the one token {image_id} of its configuration: the "
                "tokenizer is of another model"
            )

    def choose_prompt(self, control: Collection[str]) -> Prompt:
        """The prompt for a tokenizer with these control tokens."""
        return self.prompt

    def content(self, page: Page) -> Image:
        """The page's image."""
        return page.image

    @classmethod
    @abstractmethod
    def page_sizing(cls, image_processor: BaseImageProcessor) -> PageSizing:
        """How the image processor resizes a page, so that whoever reads one can do it instead."""

    @classmethod
    @abstractmethod
    def limit_pixels(cls, image_processor: BaseImageProcessor, max_pixels: int) -> None:
        """Set the image processor's pixel budget, before the backbone is built."""

    def _fingerprint_processor(self) -> str:
        return fingerprint_processor(self._image_processor, self._tokenizer)

    def _process(self, images: Sequence[Image] | Sequence[list[Image]], **options: bool) -> BatchFeature:
        """Run the image processor."""
        try:
            return self._image_processor(images=list(images), return_tensors="pt", **options)
        except Exception as error:  # it raises whatever its settings lead it into
            raise BackboneError(f"the image processor of {self.name} refused a page: {error}") from error


_PATCHES_AT_ONCE = 8192
"""Patches that go through the vision tower at once, unless one page has more: this bounds its memory."""


class GridBackbone(VisualBackbone):
    """A model whose processor gives `image_grid_thw` and which places tokens by `get_rope_index`."""

    former_names = MappingProxyType(
        {r"^model\.(embed_tokens|layers|norm)\.": r"model.language_model.\1.", r"^visual\.": "model.visual."}
    )

    @classmethod
    def frames(cls, image_processor: BaseImageProcessor) -> int:
        """How often the processor counts the pixels of a still image."""
        return 1

    @classmethod
    def limit_pixels(cls, image_processor: BaseImageProcessor, max_pixels: int) -> None:
        """Set the pixel budget of one frame."""
        image_processor.size = image_processor.size | {
            "longest_edge": max_pixels * cls.frames(image_processor)
        }

    @classmethod
    def page_sizing(cls, image_processor: BaseImageProcessor) -> PatchSizing:
        """Sides of whole visual tokens, the area within the processor's bounds, which it calls edges."""
        smallest, largest = (int(image_processor.size[name]) for name in ("shortest_edge", "longest_edge"))
        frames = cls.frames(image_processor)
        return PatchSizing(
            max_pixels=largest // frames,
            resample=int(image_processor.resample),
            bounds=(smallest, largest),
            multiple=image_processor.patch_size * image_processor.merge_size,
            frames=frames,
        )

    def _text_model(self) -> PreTrainedModel:
        return self._model.model.language_model

    def _tokenize_pages(self, images: Sequence[Image]) -> list[PageTokens]:
        merge = self._image_processor.merge_size
        pages = []
        for grid, page_features, layer_features in self._see_pages(images):
            rows, columns = int(grid[1]) // merge, int(grid[2]) // merge
            ids = torch.tensor(
                self.tokens.image_page(self.image_token * (rows * columns)), device=self.device
            )
            visual = ids == self._model.config.image_token_id
            # Without the token types Qwen2.5-VL silently falls back to one axis.
            positions, _ = self._model.model.get_rope_index(
                ids[None], mm_token_type_ids=visual[None].int(), image_grid_thw=grid[None]
            )
            pages.append(
                PageTokens(
                    ids=ids,
                    visual=visual,
                    features=page_features,
                    positions=positions[:, 0],
                    grid=(rows, columns),
                    layer_features=layer_features,
                )
            )
        return pages

    def _see_pages(self, images: Sequence[Image]) -> Iterator[tuple[Tensor, Tensor, tuple[Tensor, ...]]]:
        """Each page's grid and features from the vision tower, and its features for the first layers."""
        batch = self._process(images)
        grids = batch["image_grid_thw"].to(self.device)
        patches = grids.prod(dim=1).tolist()
        expected = self._model.model.visual.patch_embed.proj.weight[0].numel()
        if (made := batch["pixel_values"].shape[-1]) != expected:
            raise BackboneError(
                f"the image processor of {self.name} makes patches of {made} numbers, not {expected}; "
                "take the preprocessor_config.json that goes with the weights"
            )
        pixels = torch.split(batch["pixel_values"], patches)
        for pages in _group_pages(patches):
            features = self._model.model.get_image_features(
                torch.cat(pixels[pages]).to(self.device), grids[pages]
            )
            # Qwen3-VL alone has features for the first layers: layer by layer, a part per page.
            deepstack = getattr(features, "deepstack_features", None) or []
            for number, page_features in enumerate(features.pooler_output):
                layer_features = tuple(layer[number] for layer in deepstack)
                yield grids[pages][number], page_features, layer_features


def _group_pages(patches: Sequence[int]) -> Iterator[slice]:
    """Neighbouring pages of at most `_PATCHES_AT_ONCE` patches together, or a single larger one."""
    start = 0
    for page in range(len(patches)):
        if page > start and sum(patches[start : page + 1]) > _PATCHES_AT_ONCE:
            yield slice(start, page)
            start = page
    yield slice(start, len(patches))


class Qwen25VL(GridBackbone):
    """Qwen2.5-VL-3B, -7B, -32B, -72B."""

    prompt = Prompt(
        before_page=f"{CHATML_USER}<|vision_start|>",
        after_page="<|vision_end|>",
        instruction=INSTRUCTION,
        after_query=CHATML_CUE,
        answers=("yes", "no"),
    )
    model_class = transformers.Qwen2_5_VLForConditionalGeneration
    image_processor_class = Qwen2VLImageProcessorPil
    default_max_pixels = 1280 * 28 * 28
    image_token = "<|image_pad|>"


class Qwen2VL(Qwen25VL):
    """Qwen2-VL-2B, -7B, -72B: another vision tower than Qwen2.5-VL's, the rest is the same."""

    model_class = transformers.Qwen2VLForConditionalGeneration


class Qwen3VL(Qwen25VL):
    """Qwen3-VL-2B, -4B, -8B, -32B Instruct; its chat template has no system turn."""

    prompt = replace(Qwen25VL.prompt, before_page="<|im_start|>user\n<|vision_start|>")
    model_class = transformers.Qwen3VLForConditionalGeneration
    default_max_pixels = 1280 * 32 * 32


def _rotate_pairs(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn neighbouring pairs of the first channels of each head; the rest carry no position."""
    turned, still = x[..., : cos.shape[-1]], x[..., cos.shape[-1] :]
    turned = turned * cos + rotate_half_llm(turned) * sin
    return torch.cat([turned, still.expand(*turned.shape[:-1], -1)], dim=-1)


class Glm41V(GridBackbone):
    """GLM-4.1V-9B-Thinking, its thinking closed before it starts so that the next token is the answer."""

    prompt = Prompt(
        before_page="[gMASK]<sop><|user|>\n<|begin_of_image|>",
        after_page="<|end_of_image|>",
        instruction=INSTRUCTION,
        after_query="<|assistant|>\n<think></think><answer>",
        answers=("yes", "no"),
    )
    model_class = transformers.Glm4vForConditionalGeneration
    image_processor_class = Glm4vImageProcessorPil
    default_max_pixels = 1280 * 28 * 28
    image_token = "<|image|>"
    rotate = staticmethod(_rotate_pairs)

    @classmethod
    def frames(cls, image_processor: BaseImageProcessor) -> int:
        """A still image counts as two, or as often as a patch has frames."""
        return int(image_processor.temporal_patch_size)


class Glm46V(Glm41V):
    """GLM-4.6V-Flash, its thinking closed before it starts; the larger GLM-4.6V mixes experts."""

    prompt = replace(Glm41V.prompt, after_query="<|assistant|>\n<think></think>\n")
    model_class = transformers.Glm46VForConditionalGeneration
    image_processor_class = Glm46VImageProcessorPil

    decoder_type = "glm4v_text"


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
    """Idefics3-8B-Llama3: a Llama decoder with one rotary axis, the page cut into square tiles.

    The processor's own tiling is kept: tiles row by row, then the whole page once more, shrunk. Each tile is
    a square of visual positions; the grid stacks the tiles below each other.
    """

    prompt = _IDEFICS3_PROMPT
    model_class = transformers.Idefics3ForConditionalGeneration
    image_processor_class = Idefics3ImageProcessorPil
    decoder_type = "llama"
    default_max_pixels = None

    def choose_prompt(self, control: Collection[str]) -> Prompt:
        """The first SmolVLMs were published as this class; their tokenizer tells them."""
        return self.prompt if "<|begin_of_text|>" in control else _SMOLVLM_PROMPT

    @classmethod
    def page_sizing(cls, image_processor: BaseImageProcessor) -> EdgeSizing:
        """The first of the processor's resizes, which sets the longest edge; cutting tiles stays its own."""
        edge = int(image_processor.size["longest_edge"])
        return EdgeSizing(max_pixels=edge**2, resample=int(image_processor.resample), longest_edge=edge)

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


class SmolVLM(Idefics3):
    """SmolVLM2 and later, the choice for a laptop."""

    prompt = _SMOLVLM_PROMPT
    model_class = transformers.SmolVLMForConditionalGeneration
    image_processor_class = SmolVLMImageProcessorPil


def tiled(grid: tuple[int, int], aspect: float) -> Regions:
    """A page cut into square tiles row by row, then seen whole: `grid` is ((tiles + 1) x side, side).

    Of the ways to lay out so many tiles, that nearest to `aspect` (width over height) is the processor's.
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
    tile, text = "<image>" * positions, ""
    for row in range(1, rows + 1):
        text += "".join(f"{_TILE_START}<row_{row}_col_{column}>{tile}" for column in range(1, columns + 1))
        text += "\n" if row < rows else "\n\n"
    return f"{text}{_TILE_START}<global-img>{tile}"
