"""ColQwen2: Qwen2-VL or Qwen2.5-VL with a projection, `ColQwen2ForRetrieval` of transformers."""

from collections.abc import Mapping
from typing import Any

import torch
from PIL.Image import Image
from torch import Tensor
from transformers import ColQwen2ForRetrieval, PreTrainedModel, PreTrainedTokenizerFast
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from ridgerank.retrievers.encoders.base import MultiVectorEncoder
from ridgerank.retrievers.encoders.encoder_prompt import EncoderPrompt

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
