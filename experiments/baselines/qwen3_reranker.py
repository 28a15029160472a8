"""Qwen3-Reranker: a causal language model that answers yes or no to a query and a text, in that order.

The score is the probability of yes among the two answers, as published: a softmax over their logits. The
instruction is the one its authors give for search; the text comes last and is cut where the prompt would
exceed `MAX_TOKENS`.
"""

from collections.abc import Sequence

import numpy as np
import torch
from tokenizers import Tokenizer
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerFast

from ridgerank.backbones.load import placement
from ridgerank.backbones.weights import NO_CODE
from ridgerank.errors import BackboneError
from ridgerank.ragged import Floats

REPOSITORY = "Qwen/Qwen3-Reranker-0.6B"
MAX_TOKENS = 8192
BEFORE = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the "
    'Instruct provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
)
BODY = "<Instruct>: {instruction}\n<Query>: {query}\n<Document>: {text}"
INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"
AFTER = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
ANSWERS = ("yes", "no")
_TEXTS_AT_ONCE = 8


class AnswerModel:
    """A model that answers with one of two words, and its tokenizer."""

    def __init__(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, answers: Sequence[str]
    ) -> None:
        self._model = model
        self._backend: Tokenizer = tokenizer.backend_tokenizer
        self._plain = Tokenizer.from_str(self._backend.to_str())
        self._plain.encode_special_tokens = True  # what users type, or a page says, is no control token
        self._answers = [answer_id(tokenizer, answer) for answer in answers]

    def _ids(self, text: str) -> list[int]:
        return list(self._backend.encode(text, add_special_tokens=False).ids)


class Qwen3Reranker(AnswerModel):
    """The model and its tokenizer; knows no store."""

    def __init__(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, *, max_tokens: int = MAX_TOKENS
    ) -> None:
        super().__init__(model, tokenizer, ANSWERS)
        self._before, self._after = self._ids(BEFORE), self._ids(AFTER)
        self._room = max_tokens - len(self._before) - len(self._after)

    def judge(self, query: str, texts: Sequence[str]) -> Floats:
        """Probabilities (texts,) of yes against no."""
        prompts = [torch.tensor(self.prompt_ids(query, text)) for text in texts]
        probabilities: list[float] = []
        for start in range(0, len(prompts), _TEXTS_AT_ONCE):
            batch = prompts[start : start + _TEXTS_AT_ONCE]
            # Padded on the left, so that every prompt's last token stands last.
            ids = pad_sequence(batch, batch_first=True, padding_side="left").to(self._model.device)
            mask = pad_sequence(
                [torch.ones_like(prompt) for prompt in batch], batch_first=True, padding_side="left"
            )
            with torch.inference_mode():
                logits = self._model(
                    input_ids=ids, attention_mask=mask.to(ids.device), use_cache=False, logits_to_keep=1
                ).logits[:, -1, self._answers]
            probabilities += logits.double().softmax(dim=1)[:, 0].tolist()
        return np.array(probabilities, dtype=np.float64)

    def prompt_ids(self, query: str, text: str) -> list[int]:
        """Tokens of the whole prompt; a long text loses its end."""
        body = BODY.format(instruction=INSTRUCTION, query=query.strip(), text=text.strip())
        ids = list(self._plain.encode(body, add_special_tokens=False).ids)
        return [*self._before, *ids[: self._room], *self._after]


def load_qwen3_reranker(
    source: str = REPOSITORY, *, device: str | torch.device | None = None
) -> Qwen3Reranker:
    """Load by repository or folder."""
    where, numbers = placement(device, None)
    try:
        tokenizer = AutoTokenizer.from_pretrained(source, **NO_CODE)
        model = AutoModelForCausalLM.from_pretrained(source, dtype=numbers, **NO_CODE)
    except (OSError, ValueError) as error:
        raise explain_load_error(source, error) from error
    if model.config.model_type != "qwen3":
        raise BackboneError(f"{source} is a model of type {model.config.model_type!r}, wanted 'qwen3'")
    return Qwen3Reranker(model.eval().requires_grad_(False).to(where), tokenizer)


def explain_load_error(source: str, error: Exception) -> BackboneError:
    """The error for a checkpoint that cannot be loaded."""
    first_line = str(error).strip().partition("\n")[0]
    return BackboneError(
        f"cannot load {source!r}: {first_line} Check the name and the connection, or download it once and "
        "give its folder."
    )


def answer_id(tokenizer: PreTrainedTokenizerFast, answer: str) -> int:
    """The token of an answer, which must be a single one."""
    ids: list[int] = tokenizer(answer, add_special_tokens=False)["input_ids"]
    if len(ids) != 1:
        raise BackboneError(f"the answer {answer!r} is {len(ids)} tokens under this tokenizer, wanted one")
    return ids[0]
