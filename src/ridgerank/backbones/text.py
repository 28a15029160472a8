"""Families that read the beginning of a page's text: Llama, Qwen2 and Qwen3, and their prompts."""

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import PurePath
from types import MappingProxyType

import torch
import transformers
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from ridgerank.backbones.base import Backbone, PageTokens
from ridgerank.backbones.prompt import CHATML_CUE, CHATML_USER, INSTRUCTION, Prompt
from ridgerank.errors import BackboneError
from ridgerank.lineage import fingerprint
from ridgerank.records import Page


def parse_text_budget(text: str) -> int:
    """How many tokens of a page are read: 512 of `head 512`, its first ones."""
    matched = re.fullmatch(r"head 0*([1-9]\d*)", text.strip())
    if matched is None:
        raise BackboneError(
            f"a page's text spelled {text!r}, expected `head` and at least one token: 'head 512'"
        )
    return int(matched[1])


_BELOW = f"\n\n{INSTRUCTION}"
_NO_THOUGHT = "<think>\n\n</think>\n\n"

_PROMPTS = (
    Prompt(CHATML_USER, "", _BELOW, CHATML_CUE, ("yes", "no"), name="chatml"),
    # A model that thinks aloud is told that it has thought.
    Prompt(CHATML_USER, "", _BELOW, CHATML_CUE + _NO_THOUGHT, ("yes", "no"), name="qwen3"),
    # Qwen3-Reranker's own words; there the document comes last, which leaves nothing to store.
    Prompt(
        "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and "
        'the Instruct provided. Note that the answer can only be "yes" or "no".<|im_end|>\n'
        "<|im_start|>user\n<Document>: ",
        "",
        "\n\n<Instruct>: Given a web search query, retrieve relevant passages that answer the query\n"
        "<Query>:\n",
        CHATML_CUE + _NO_THOUGHT,
        ("yes", "no"),
        name="qwen3-reranker",
    ),
    Prompt(
        "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\n",
        "",
        _BELOW,
        "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
        ("yes", "no"),
        name="llama3",
    ),
    Prompt("Page:\n", "", _BELOW, "\nAnswer:", (" yes", " no"), name="plain"),
)
TEXT_PROMPTS: Mapping[str, Prompt] = MappingProxyType({prompt.name: prompt for prompt in _PROMPTS})


def choose_prompt(name: str, control: Collection[str]) -> str:
    """The prompt for a model of this name whose tokenizer has these control tokens."""
    if {"<|im_start|>", "<|im_end|>"} <= set(control):
        if "<think>" not in control:
            return "chatml"
        return "qwen3-reranker" if "reranker" in PurePath(name).name.lower() else "qwen3"
    return "llama3" if "<|start_header_id|>" in control else "plain"


def text_prompt(name: str) -> Prompt:
    """A prompt by name."""
    if name not in TEXT_PROMPTS:
        raise BackboneError(f"no prompt called {name!r}; known: {', '.join(TEXT_PROMPTS)}")
    return TEXT_PROMPTS[name]


MODEL_CLASSES: dict[str, type[PreTrainedModel]] = {
    "llama": transformers.LlamaForCausalLM,
    "qwen2": transformers.Qwen2ForCausalLM,
    "qwen3": transformers.Qwen3ForCausalLM,
}
_ROTATIONS = ("default", "linear", "llama3", "yarn")
"""Rotary embeddings whose angles depend on the position alone, not on the length of the sequence."""
_PAGE_PIXELS = 1_600_000  # of a thumbnail, and for OCR of pages without text
_TOKEN_CHARACTERS = 100  # a token has fewer on any page


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
        page_tokens: int,
    ) -> None:
        """Take a model in evaluation mode, on its device, with its tokenizer."""
        self.prompt = prompt
        self._page_tokens = page_tokens
        self.max_pixels = _PAGE_PIXELS
        self.page_budget = _PAGE_PIXELS
        self.page_text = f"head {page_tokens}"
        super().__init__(name, model, tokenizer)
        rotation = (model.config.rope_parameters or {}).get("rope_type", "default")
        if rotation not in _ROTATIONS:
            raise BackboneError(
                f"{name} has rotary embeddings of type {rotation!r}, which depend on the length of the "
                f"prompt; stored pages support {', '.join(_ROTATIONS)}"
            )

    def content(self, page: Page) -> str:
        """The page's text."""
        return page.text

    def text_spans(self, text: str) -> list[tuple[int, int]]:
        """Where the characters of each position that is read stand in a page's text."""
        before = len(text) - len(text.lstrip())
        _, spans = self.tokens.page_text(self._head(text))
        return [(before + start, before + end) for start, end in spans[: self._page_tokens]]

    def _head(self, text: str) -> str:
        """As much of a text as may be read: a text of megabytes is not tokenized whole."""
        return text.strip()[: _TOKEN_CHARACTERS * self._page_tokens]

    def _fingerprint_processor(self) -> str:
        backend = self._tokenizer.backend_tokenizer.to_str()
        return fingerprint({"tokenizer": backend, "budget": self.page_text})

    def _text_model(self) -> PreTrainedModel:
        return self._model.model

    def _tokenize_pages(self, pages: Sequence[str]) -> list[PageTokens]:
        before, after = self.tokens.around_text()
        page_tokens = []
        for page in pages:
            chosen = self.tokens.page_text(self._head(page))[0][: self._page_tokens]
            ids = [*before, *chosen, *after]
            visual = torch.zeros(len(ids), dtype=torch.bool, device=self.device)
            visual[len(before) : len(before) + len(chosen)] = True
            page_tokens.append(
                PageTokens(
                    ids=torch.tensor(ids, device=self.device),
                    visual=visual,
                    features=None,
                    positions=torch.arange(len(ids), device=self.device)[None],
                    grid=(1, len(chosen)),
                )
            )
        return page_tokens
