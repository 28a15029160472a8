"""ColPali: PaliGemma with a projection, `ColPaliForRetrieval` of transformers."""

from collections.abc import Mapping
from typing import Any

import torch
from PIL.Image import Image
from torch import Tensor
from transformers import ColPaliForRetrieval, PreTrainedModel, PreTrainedTokenizerFast
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

from ridgerank.retrievers.encoders.base import MultiVectorEncoder
from ridgerank.retrievers.encoders.encoder_prompt import EncoderPrompt

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
