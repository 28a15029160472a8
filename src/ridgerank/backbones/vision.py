"""Families that look at a page's image, and those whose positions have three axes (Qwen-VL, GLM-4V)."""

import re
from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import ClassVar

import torch
from PIL.Image import Image
from tokenizers import Tokenizer
from torch import Tensor
from transformers import (
    BaseImageProcessor,
    BatchFeature,
    Glm4vForConditionalGeneration,
    Glm46VForConditionalGeneration,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2VLForConditionalGeneration,
    Qwen3VLForConditionalGeneration,
)
from transformers.models.glm4v.image_processing_pil_glm4v import Glm4vImageProcessorPil
from transformers.models.glm4v.modeling_glm4v import rotate_half_llm
from transformers.models.glm46v.image_processing_pil_glm46v import Glm46VImageProcessorPil
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from ridgerank.backbones.base import Backbone, PageTokens, fingerprint_processor
from ridgerank.backbones.decoder import Decoder, rotate_halves
from ridgerank.backbones.model_settings import Preset
from ridgerank.backbones.prompt import INSTRUCTION, Prompt
from ridgerank.errors import BackboneError
from ridgerank.page_sizing import PageSizing, PatchSizing
from ridgerank.records import Page


class VisualBackbone(Backbone):
    """A multimodal model; its prompt is the family's, or that of a preset."""

    model_class: ClassVar[type[PreTrainedModel]]
    image_processor_class: ClassVar[type[BaseImageProcessor]]
    default_max_pixels: ClassVar[int | None]
    """Pixel budget of a page unless the user says otherwise; `None` leaves the processor's own."""
    rotated_share: ClassVar[float] = 1.0
    """The share of each head's channels that the family turns by position, where sections do not say."""
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
        """Take a model in evaluation mode, on its device, with its tokenizer and PIL image processor.

        A preset brings its own prompt, and the model its ranking head where the preset has one.
        """
        if preset is not None:
            self.prompt = preset.prompt
            self.ranking_head = model.score if preset.ranking_head else None
        self._image_processor = image_processor
        self.max_pixels = self.pixel_budget(image_processor)
        self.page_budget = self.page_sizing(image_processor)
        require_control_tokens(name, self.prompt, tokenizer.backend_tokenizer)
        super().__init__(name, model, tokenizer)
        require_rotation(name, self._text_model(), head_dim=self.geometry.head_dim, share=self.rotated_share)
        if self.image_token:
            require_image_token(name, self.tokens.image_page(self.image_token), model.config.image_token_id)

    def content(self, page: Page) -> Image:
        """The page's image."""
        return page.image

    @classmethod
    @abstractmethod
    def pixel_budget(cls, image_processor: BaseImageProcessor) -> int:
        """The image processor's pixel budget of a page."""

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
    def pixel_budget(cls, image_processor: BaseImageProcessor) -> int:
        """The pixel budget of one frame; the processor calls that of all its longest edge."""
        return int(image_processor.size["longest_edge"]) // cls.frames(image_processor)

    @classmethod
    def limit_pixels(cls, image_processor: BaseImageProcessor, max_pixels: int) -> None:
        """Set the pixel budget of one frame."""
        longest_edge = max_pixels * cls.frames(image_processor)
        image_processor.size = image_processor.size | {"longest_edge": longest_edge}

    @classmethod
    def page_sizing(cls, image_processor: BaseImageProcessor) -> PatchSizing:
        """Sides of whole visual tokens, the area within the processor's bounds."""
        size = image_processor.size
        return PatchSizing(
            max_pixels=cls.pixel_budget(image_processor),
            resample=int(image_processor.resample),
            bounds=(int(size["shortest_edge"]), int(size["longest_edge"])),
            multiple=image_processor.patch_size * image_processor.merge_size,
            frames=cls.frames(image_processor),
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
        if not batch["pixel_values"].numel():
            raise BackboneError(
                f"the image processor of {self.name} refused a page: it makes no pixels of it"
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
            f"{list(ids).count(image_token_id)} times, expected once per visual position; tokenizer and "
            "configuration are not of one model"
        )


class Qwen25VL(GridBackbone):
    """Qwen2.5-VL-3B, -7B, -32B, -72B."""

    prompt = Prompt(
        before_page=(
            "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n<|vision_start|>"
        ),
        after_page="<|vision_end|>",
        instruction=INSTRUCTION,
        after_query="<|im_end|>\n<|im_start|>assistant\n",
        answers=("yes", "no"),
    )
    model_class = Qwen2_5_VLForConditionalGeneration
    image_processor_class = Qwen2VLImageProcessorPil
    default_max_pixels = 1280 * 28 * 28
    image_token = "<|image_pad|>"

    def _build_decoder(self) -> Decoder:
        text = self._text_model()
        if getattr(text, "has_sliding_layers", False):
            raise BackboneError(f"{self.name} has sliding-window layers, which stored pages do not support")
        return Decoder(self._take_block, self.geometry, rotary=text.rotary_emb, rotate=rotate_halves)


class Qwen2VL(Qwen25VL):
    """Qwen2-VL-2B, -7B, -72B: another vision tower than Qwen2.5-VL's, the rest is the same."""

    model_class = Qwen2VLForConditionalGeneration


class Qwen3VL(Qwen25VL):
    """Qwen3-VL-2B, -4B, -8B, -32B Instruct; its chat template has no system turn."""

    prompt = replace(Qwen25VL.prompt, before_page="<|im_start|>user\n<|vision_start|>")
    model_class = Qwen3VLForConditionalGeneration
    default_max_pixels = 1280 * 32 * 32


class Glm41V(GridBackbone):
    """GLM-4.1V-9B-Thinking, its thinking closed before it starts so that the next token is the answer."""

    prompt = Prompt(
        before_page="[gMASK]<sop><|user|>\n<|begin_of_image|>",
        after_page="<|end_of_image|>",
        instruction=INSTRUCTION,
        after_query="<|assistant|>\n<think></think><answer>",
        answers=("yes", "no"),
    )
    model_class = Glm4vForConditionalGeneration
    image_processor_class = Glm4vImageProcessorPil
    default_max_pixels = 1280 * 28 * 28
    image_token = "<|image|>"
    rotated_share = 0.5

    @classmethod
    def frames(cls, image_processor: BaseImageProcessor) -> int:
        """A still image counts as two."""
        return int(image_processor.temporal_patch_size)

    def _build_decoder(self) -> Decoder:
        rotary = self._text_model().rotary_emb
        return Decoder(self._take_block, self.geometry, rotary=rotary, rotate=_rotate)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn neighbouring pairs of the first channels of each head; the rest carry no position."""
    turned, still = x[..., : cos.shape[-1]], x[..., cos.shape[-1] :]
    turned = turned * cos + rotate_half_llm(turned) * sin
    return torch.cat([turned, still.expand(*turned.shape[:-1], -1)], dim=-1)


class Glm46V(Glm41V):
    """GLM-4.6V-Flash, its thinking closed before it starts; the larger GLM-4.6V mixes experts."""

    prompt = replace(Glm41V.prompt, after_query="<|assistant|>\n<think></think>\n")
    model_class = Glm46VForConditionalGeneration
    image_processor_class = Glm46VImageProcessorPil

    def _build_decoder(self) -> Decoder:
        kind = self._text_model().config.model_type
        if kind != "glm4v_text":
            raise BackboneError(
                f"{self.name} has a {kind!r} decoder; only 'glm4v_text' is supported, as in GLM-4.6V-Flash"
            )
        return super()._build_decoder()
