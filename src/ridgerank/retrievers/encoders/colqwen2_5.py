"""ColQwen2.5, as ColNomic is published: a peft adapter and a projection on Qwen2.5-VL.

The adapter names a base: Qwen2.5-VL's weights with a projection of 128 dimensions, which the adapter tunes
with the rest. Both are loaded on transformers' own class. Checkpoints of three layouts exist, as transformers
renamed the parts of that class over time; all become the present one.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerFast, Qwen2_5_VLConfig, Qwen2_5_VLModel

from ridgerank.backbones.peft_adapter import apply_adapter
from ridgerank.errors import BackboneError, RetrieverError
from ridgerank.retrievers.encoders.colqwen2 import PAGE_PROMPT, QUERY_PREFIX, THINKING_TOKENS, GridEncoder
from ridgerank.retrievers.encoders.encoder_prompt import EncoderPrompt

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
