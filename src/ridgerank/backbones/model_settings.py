"""Which model to load and how it reads pages. Importing this module imports no model."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from ridgerank.lineage import Lineage

if TYPE_CHECKING:
    import torch

    from ridgerank.backbones.base import Backbone


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """The arguments of `load_backbone`, as a record that can be compared and sent to another process."""

    name: str
    """A short name, a hub repository or a folder."""
    device: str | None = None
    dtype: "str | torch.dtype | None" = None
    max_pixels: int | None = None
    """The pixel budget of a page image; None is the default of the family, and for models that read text."""
    page_text: str | None = None
    """How much of a page's text is read (`head 512`); None for models that read images."""
    prompt: str | None = None
    """The name of the prompt, where the family has several."""

    @classmethod
    def from_lineage(
        cls,
        lineage: Lineage,
        *,
        name: str | None = None,
        device: str | None = None,
        dtype: "str | torch.dtype | None" = None,
    ) -> Self:
        """The settings that read pages as they were read for this lineage, from `name` where given."""
        return cls(
            name or lineage.backbone,
            device,
            dtype,
            max_pixels=lineage.max_pixels,
            page_text=lineage.page_text,
            prompt=lineage.prompt_name,
        )

    def load(self) -> "Backbone":
        """Load the model in this process."""
        from ridgerank.backbones.model_source import find_model

        find_model(self.name)  # a wrong name is reported before torch is imported
        from ridgerank.backbones.load import load_backbone, parse_dtype

        return load_backbone(
            self.name,
            device=self.device,
            dtype=parse_dtype(self.dtype),
            max_pixels=self.max_pixels,
            page_text=self.page_text,
            prompt=self.prompt,
        )
