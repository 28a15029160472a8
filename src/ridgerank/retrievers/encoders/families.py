"""The families of late interaction models: ColPali, ColQwen2, and ColQwen2.5 as an adapter."""

from collections.abc import Mapping
from typing import Any

import torch
from PIL.Image import Image
from torch import Tensor, nn
from transformers import (
    ColPaliForRetrieval,
    ColQwen2ForRetrieval,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2_5_VLConfig,
    Qwen2_5_VLModel,
)
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

from ridgerank.backbones.rerankers import apply_adapter
from ridgerank.errors import BackboneError, RetrieverError
from ridgerank.retrievers.encoders.base import EncoderPrompt, MultiVectorEncoder

_THINKING_TOKENS = 10


class ColPali(MultiVectorEncoder):
    """ColPali-v1.3 and its kin."""

    model_class = ColPaliForRetrieval
    image_processor_class = SiglipImageProcessorPil

    @staticmethod
    def prompt(
        model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, settings: Mapping[str, Any]
    ) -> EncoderPrompt:
        """The words of transformers' `ColPaliProcessor`; a folder may bring its own."""
        bos, image_id = tokenizer.bos_token, model.config.vlm_config.image_token_id
        image = tokenizer.convert_ids_to_tokens(image_id)
        words = settings.get("visual_prompt_prefix") or "Describe the image."
        return EncoderPrompt(
            page_prompt=f"{image}{bos}{words}\n",
            image_token=image,
            image_token_id=image_id,
            before_query=bos,
            query_prefix=settings.get("query_prefix") or "Question: ",
            after_query=f"{tokenizer.pad_token * _THINKING_TOKENS}\n",
        )

    @property
    def dim(self) -> int:
        """Numbers in a vector."""
        return int(self._model.config.embedding_dim)

    def _page(self, image: Image) -> Tensor:
        vision = self._model.config.vlm_config.vision_config
        ids = torch.tensor([self.page_ids((vision.image_size // vision.patch_size) ** 2)], device=self.device)
        return self._run(ids, torch.ones_like(ids), self._process(image)["pixel_values"])[0]

    def _query_batch(self, ids: Tensor, mask: Tensor) -> Tensor:
        return self._run(ids, mask, None)

    def _run(self, ids: Tensor, mask: Tensor, pixels: Tensor | None) -> Tensor:
        # Token types of 0 let every token attend to every other, as PaliGemma reads its prefix.
        states = self._model.vlm(
            input_ids=ids,
            attention_mask=mask,
            token_type_ids=torch.zeros_like(ids),
            pixel_values=None if pixels is None else pixels.to(self._model.dtype),
            use_cache=False,
        ).last_hidden_state
        projection = self._model.embedding_proj_layer
        projected: Tensor = projection(states.to(projection.weight.dtype))
        return projected


PAGE_PROMPT = (
    "<|im_start|>user\n<|vision_start|><|image_pad|><|vision_end|>Describe the image.<|im_end|><|endoftext|>"
)
QUERY_PREFIX = "Query: "
THINKING_TOKENS = 10


class GridEncoder(MultiVectorEncoder):
    """What the families on Qwen's vision towers share: an image is a grid, with positions on three axes."""

    image_processor_class = Qwen2VLImageProcessorPil

    @property
    def dim(self) -> int:
        """Numbers in a vector."""
        return int(self._projection().out_features)

    def _page(self, image: Image) -> Tensor:
        batch = self._process(image)
        grid = batch["image_grid_thw"]
        positions_of_image = int(grid.prod()) // self._image_processor.merge_size**2
        ids = torch.tensor([self.page_ids(positions_of_image)], device=self.device)
        # transformers falls back to one axis unless told which tokens are visual; these models were trained
        # with three, so the positions are passed.
        visual = (ids == self._prompt.image_token_id).int()
        positions, _ = self._vlm().get_rope_index(ids, mm_token_type_ids=visual, image_grid_thw=grid)
        pixels = {"pixel_values": batch["pixel_values"], "image_grid_thw": grid}
        return self._run(ids, torch.ones_like(ids), positions, pixels)[0]

    def _query_batch(self, ids: Tensor, mask: Tensor) -> Tensor:
        positions = torch.arange(ids.shape[1], device=self.device).expand(3, len(ids), -1)
        return self._run(ids, mask, positions, {})

    def _run(self, ids: Tensor, mask: Tensor, positions: Tensor, pixels: Mapping[str, Tensor]) -> Tensor:
        states = self._vlm()(
            input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=False, **pixels
        ).last_hidden_state
        projected: Tensor = self._projection()(states)
        return projected

    def _vlm(self) -> PreTrainedModel:
        return self._model.vlm

    def _projection(self) -> torch.nn.Linear:
        projection: torch.nn.Linear = self._model.embedding_proj_layer
        return projection


class ColQwen2(GridEncoder):
    """ColQwen2-v1.0, and folders of its class on either of Qwen's vision language models."""

    model_class = ColQwen2ForRetrieval

    @staticmethod
    def prompt(
        model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, settings: Mapping[str, Any]
    ) -> EncoderPrompt:
        """The words of transformers' `ColQwen2Processor`; a folder may bring its own."""
        image_id = model.config.vlm_config.image_token_id
        return EncoderPrompt(
            page_prompt=settings.get("visual_prompt_prefix") or PAGE_PROMPT,
            image_token=tokenizer.convert_ids_to_tokens(image_id),
            image_token_id=image_id,
            query_prefix=settings.get("query_prefix") or QUERY_PREFIX,
            after_query=f"{tokenizer.pad_token * THINKING_TOKENS}\n",
        )


_DIM = 128
_RENAMED = {
    r"^model\.(visual|language_model)\.": r"\1.",
    r"^model\.(embed_tokens|layers|norm)\.": r"language_model.\1.",
}
"""Names of parts in earlier layouts, and what they are now."""


class ColQwen25(GridEncoder):
    """ColNomic-7B and -3B, ColQwen2.5."""

    @staticmethod
    def prompt(
        model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, settings: Mapping[str, Any]
    ) -> EncoderPrompt:
        """The words these models were trained with; a folder may bring its own."""
        image_id = model.config.image_token_id
        return EncoderPrompt(
            page_prompt=settings.get("visual_prompt_prefix") or PAGE_PROMPT,
            image_token=tokenizer.convert_ids_to_tokens(image_id),
            image_token_id=image_id,
            query_prefix=settings.get("query_prefix") or QUERY_PREFIX,
            after_query=tokenizer.pad_token * THINKING_TOKENS,
        )

    def _vlm(self) -> PreTrainedModel:
        return self._model

    def _projection(self) -> nn.Linear:
        projection: nn.Linear = self._model.custom_text_proj
        return projection


class ProjectedQwen25(Qwen2_5_VLModel):  # type: ignore[misc]
    """Qwen2.5-VL without its language head, and the projection under the name it was published with."""

    def __init__(self, config: Qwen2_5_VLConfig) -> None:
        super().__init__(config)
        self.custom_text_proj = nn.Linear(config.text_config.hidden_size, _DIM)
        self.post_init()


def load_adapted_model(
    source: str, base: str, *, dtype: torch.dtype, revision: str | None
) -> ProjectedQwen25:
    """Load the base an adapter was made for, and the adapter on it; a part without weights is an error."""
    model: ProjectedQwen25
    model, loading = ProjectedQwen25.from_pretrained(
        base, dtype=dtype, key_mapping=_RENAMED, output_loading_info=True
    )
    try:
        replaced_parts = apply_adapter(model, source, revision, renamed=_RENAMED)
    except BackboneError as error:
        raise RetrieverError(str(error)) from error
    uninitialized = sorted(
        name for name in loading["missing_keys"] if name.rpartition(".")[0] not in replaced_parts
    )
    if uninitialized:
        raise RetrieverError(
            f"neither the adapter {source!r} nor its base {base!r} holds the weights of "
            f"{', '.join(uninitialized[:3])} ({len(uninitialized)} in all); give a base that goes with the "
            "adapter"
        )
    return model
