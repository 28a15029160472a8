"""Prompts for pages that are text: document first, then the instruction, then the query.

Which one fits is seen from the tokenizer's control tokens, not from the model's class: SmolLM2 is a Llama
that speaks ChatML. Text without a chat template gets the plain one.
"""

from collections.abc import Collection, Mapping
from types import MappingProxyType

from ridgerank.backbones.prompt import INSTRUCTION, Prompt
from ridgerank.errors import BackboneError

_BELOW = f"\n\n{INSTRUCTION}"
_CHATML_USER = "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n"
_CHATML_CUE = "<|im_end|>\n<|im_start|>assistant\n"
_NO_THOUGHT = "<think>\n\n</think>\n\n"

_PROMPTS = (
    Prompt(_CHATML_USER, "", _BELOW, _CHATML_CUE, ("yes", "no"), name="chatml"),
    # A model that thinks aloud is told that it has thought.
    Prompt(_CHATML_USER, "", _BELOW, _CHATML_CUE + _NO_THOUGHT, ("yes", "no"), name="qwen3"),
    # Qwen3-Reranker's own words; there the document comes last, which leaves nothing to store.
    Prompt(
        "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and "
        'the Instruct provided. Note that the answer can only be "yes" or "no".<|im_end|>\n'
        "<|im_start|>user\n<Document>: ",
        "",
        "\n\n<Instruct>: Given a web search query, retrieve relevant passages that answer the query\n"
        "<Query>:\n",
        _CHATML_CUE + _NO_THOUGHT,
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
"""Every prompt by its name."""


def choose_prompt(name: str, control: Collection[str]) -> str:
    """The prompt for a model of this name whose tokenizer has these control tokens."""
    if {"<|im_start|>", "<|im_end|>"} <= set(control):
        if "<think>" not in control:
            return "chatml"
        return "qwen3-reranker" if "reranker" in name.lower() else "qwen3"
    return "llama3" if "<|start_header_id|>" in control else "plain"


def text_prompt(name: str) -> Prompt:
    """A prompt by name."""
    if name not in TEXT_PROMPTS:
        raise BackboneError(f"no prompt called {name!r}; known: {', '.join(TEXT_PROMPTS)}")
    return TEXT_PROMPTS[name]
