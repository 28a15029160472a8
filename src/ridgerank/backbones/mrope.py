"""What the families with three rotary axes share: an image is a grid of patches, merged in squares."""

from collections.abc import Iterator, Sequence
from types import MappingProxyType

import torch
from PIL.Image import Image
from torch import Tensor
from transformers import BaseImageProcessor, PreTrainedModel, PreTrainedTokenizerFast

from ridgerank.backbones.page_tokens import PageTokens
from ridgerank.backbones.presets import Preset
from ridgerank.backbones.self_test import require_image_token
from ridgerank.backbones.visual import VisualBackbone
from ridgerank.page_sizing import PatchSizing

_PATCHES_AT_ONCE = 8192
"""Patches that go through the vision tower at once, unless one page has more: this bounds its memory."""


class GridBackbone(VisualBackbone):
    """A model whose processor gives `image_grid_thw` and which places tokens by `get_rope_index`."""

    image_token: str
    """The text of one visual position."""
    former_names = MappingProxyType(
        {r"^model\.(embed_tokens|layers|norm)\.": r"model.language_model.\1.", r"^visual\.": "model.visual."}
    )

    def __init__(
        self,
        name: str,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerFast,
        image_processor: BaseImageProcessor,
        preset: Preset | None = None,
    ) -> None:
        """Take a model whose tokenizer and configuration agree on the token of a visual position."""
        super().__init__(name, model, tokenizer, image_processor, preset)
        require_image_token(name, self.tokens.image_page(self.image_token), model.config.image_token_id)

    @classmethod
    def page_sizing(cls, image_processor: BaseImageProcessor) -> PatchSizing:
        """Sides of whole visual tokens, the area within the processor's bounds."""
        size, max_pixels = image_processor.size, cls.pixel_budget(image_processor)
        return PatchSizing(
            max_pixels=max_pixels,
            resample=int(image_processor.resample),
            bounds=(int(size["shortest_edge"]), int(size["longest_edge"])),
            multiple=image_processor.patch_size * image_processor.merge_size,
            frames=int(size["longest_edge"]) // max_pixels,
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
