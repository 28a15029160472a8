"""Families that look at a page: an image, a processor, a vision tower."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar

from PIL.Image import Image
from transformers import BaseImageProcessor, BatchFeature, PreTrainedModel, PreTrainedTokenizerFast

from ridgerank.backbones.base import Backbone
from ridgerank.backbones.fingerprints import fingerprint_processor
from ridgerank.backbones.presets import Preset
from ridgerank.backbones.self_test import require_control_tokens, require_rotation
from ridgerank.errors import BackboneError
from ridgerank.page_sizing import PageSizing
from ridgerank.records import Page


class VisualBackbone(Backbone):
    """A multimodal model; its prompt is the family's, or that of a preset."""

    model_class: ClassVar[type[PreTrainedModel]]
    image_processor_class: ClassVar[type[BaseImageProcessor]]
    default_max_pixels: ClassVar[int | None]
    """Pixel budget of a page unless the user says otherwise; `None` leaves the processor's own."""
    rotated_share: ClassVar[float] = 1.0
    """The share of each head's channels that the family turns by position, where sections do not say."""
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
        except ValueError as error:
            raise BackboneError(f"the image processor of {self.name} refused a page: {error}") from error
