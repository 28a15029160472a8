"""Families that read a page's text: Llama, Qwen2 and Qwen3, plain causal language models.

The page's text tokens take the place of visual positions. A page longer than the budget is cut as the
budget says; the lineage records it.
"""

from collections.abc import Sequence

import torch
from transformers import (
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2ForCausalLM,
    Qwen3ForCausalLM,
)

from ridgerank.backbones.base import Backbone
from ridgerank.backbones.decoder import Decoder, llama_block, rotate_halves
from ridgerank.backbones.page_tokens import PageTokens
from ridgerank.backbones.prompt import Prompt
from ridgerank.backbones.text_budget import TextBudget
from ridgerank.errors import BackboneError
from ridgerank.lineage import fingerprint
from ridgerank.records import Page

MODEL_CLASSES: dict[str, type[PreTrainedModel]] = {
    "llama": LlamaForCausalLM,
    "qwen2": Qwen2ForCausalLM,
    "qwen3": Qwen3ForCausalLM,
}
"""Classes by the `model_type` of their configuration."""
_ROTATIONS = ("default", "linear", "llama3", "yarn")
"""Rotary embeddings whose angles depend on the position alone, not on the length of the sequence."""
_PAGE_PIXELS = 1_600_000
"""The page is rendered for its thumbnail, and for OCR where it carries no text."""


class CausalText(Backbone):
    """A causal language model over page text; one class, since the three share their layers' names."""

    reads_text = True

    def __init__(
        self,
        name: str,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerFast,
        *,
        prompt: Prompt,
        budget: TextBudget,
    ) -> None:
        """Take a model in evaluation mode, on its device, with its tokenizer."""
        self.prompt = prompt
        self.budget = budget
        self.max_pixels = _PAGE_PIXELS
        self.page_budget = _PAGE_PIXELS
        self.page_text = str(budget)
        super().__init__(name, model, tokenizer)

    def content(self, page: Page) -> str:
        """The page's text."""
        return page.text

    def text_spans(self, text: str) -> list[tuple[int, int]]:
        """Where the characters of each position that is read stand in a page's text."""
        before = len(text) - len(text.lstrip())
        spans = self.tokens.page_text(text.strip()).spans
        return [
            (before + spans[index][0], before + spans[index][1]) for index in self.budget.choose(len(spans))
        ]

    def _fingerprint_processor(self) -> str:
        backend = self._tokenizer.backend_tokenizer.to_str()
        return fingerprint({"tokenizer": backend, "budget": str(self.budget)})

    def _text_model(self) -> PreTrainedModel:
        return self._model.model

    def _tokenize_pages(self, pages: Sequence[str]) -> list[PageTokens]:
        before, after = self.tokens.around_text()
        page_tokens = []
        for page in pages:
            tokens = self.tokens.page_text(page.strip())
            chosen = self.budget.choose(len(tokens.ids))
            ids = [*before, *(tokens.ids[index] for index in chosen), *after]
            visual = torch.zeros(len(ids), dtype=torch.bool, device=self.device)
            visual[len(before) : len(before) + len(chosen)] = True
            page_tokens.append(
                PageTokens(
                    ids=torch.tensor(ids, device=self.device),
                    visual=visual,
                    features=None,
                    positions=torch.arange(len(ids), device=self.device)[None],
                    grid=(1, len(chosen)),
                    pieces=tuple(tokens.pieces[index] for index in chosen),
                )
            )
        return page_tokens

    def _build_decoder(self) -> Decoder:
        text, config = self._text_model(), self._model.config
        if "sliding_attention" in (getattr(config, "layer_types", None) or ()):
            raise BackboneError(f"{self.name} has sliding-window layers, which stored pages do not support")
        rotation = (config.rope_parameters or {}).get("rope_type", "default")
        if rotation not in _ROTATIONS:
            raise BackboneError(
                f"{self.name} has rotary embeddings of type {rotation!r}, which depend on the length of the "
                f"prompt; stored pages support {', '.join(_ROTATIONS)}"
            )
        blocks = [llama_block(layer) for layer in text.layers]
        return Decoder(blocks, self.geometry, rotary=text.rotary_emb, rotate=rotate_halves)
