"""The prompt, cut where the page ends and the query begins.

The tokens before the cut and those after it have to be those of the whole prompt. The instruction ends in a
newline, or in a blank that becomes part of the query's first token; that its tokens stay the same before a
query is proven query by query. The last of them opens the suffix: it predicts the query's first token, which
a likelihood needs. What people type, and what stands on a page, is tokenized as plain text: it can never
become a control token.
"""

import json
from dataclasses import asdict, dataclass
from typing import Any

from tokenizers import Tokenizer

from ridgerank.errors import BackboneError

INSTRUCTION = (
    "Above is a page of a document. Does it help to answer the query below? "
    "Answer with one word, yes or no.\nQuery:\n"
)
CHATML_USER = "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n"
CHATML_CUE = "<|im_end|>\n<|im_start|>assistant\n"


@dataclass(frozen=True, slots=True)
class Prompt:
    """A family's prompt, in order; the page goes between the first two parts."""

    before_page: str
    """The system turn, and the opening of the user's turn."""
    after_page: str
    """The control token that closes the page's image; empty where a page is text."""
    instruction: str
    """Plain text, the same for every page, ending in a newline or a blank."""
    after_query: str
    """What ends the user's turn, a control token or a newline, and the cue for the answer; empty where
    `closing_tokens` do both."""
    answers: tuple[str, str] | None
    """The text of the answer token for a relevant page, then for an irrelevant one; None if a ranking
    head takes their place."""
    name: str = ""
    closing_tokens: tuple[int, ...] = ()
    """Tokens behind everything, by id, where a model was trained with one that no text stands for."""


class PromptTokens:
    """A prompt under a tokenizer: page tokens, suffix tokens, answer tokens."""

    def __init__(self, prompt: Prompt, backend: Tokenizer) -> None:
        """Prove what can be proven before a query is seen, or raise `BackboneError`."""
        self.prompt = prompt
        self._whole = backend
        self._plain = _without_added_tokens(backend)
        self._added = frozenset(backend.get_added_tokens_decoder())
        self._instruction = self._plain_ids(prompt.instruction.rstrip(" "))
        self._after_query = [*self._ids(prompt.after_query), *prompt.closing_tokens]
        if prompt.after_page:
            closed = self._ids(prompt.after_page)
            self._require(not self._added.isdisjoint(closed[-1:]), prompt.after_page)
            below = prompt.after_page + prompt.instruction.rstrip(" ")
            self._require(self._ids(below) == [*closed, *self._instruction], below)
        self._bounded = not prompt.after_query or not self._added.isdisjoint(self._after_query[:1])
        self._require(self._bounded or prompt.after_query.startswith("\n"), prompt.after_query)
        self.answers = tuple(self._answer(text) for text in prompt.answers or ())
        """Ids of the two answer tokens: yes, no; none where the model has a ranking head."""

    def image_page(self, image: str) -> list[int]:
        """Tokens of the page part; `image` is the text that stands for the page's image."""
        opening = self._ids(self.prompt.before_page + image + self.prompt.after_page)
        return [*opening, *self._instruction[:-1]]

    def around_text(self) -> tuple[list[int], list[int]]:
        """Tokens of the page part before and after a page that is text."""
        return self._ids(self.prompt.before_page), self._instruction[:-1]

    def page_text(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """A page's text as plain tokens, none of control, and where each of them stands in the text."""
        encoding = self._plain.encode(text, add_special_tokens=False)
        ids, offsets = encoding.ids, encoding.offsets  # each access makes a new list
        kept = [number for number, token in enumerate(ids) if token not in self._added]
        return [ids[number] for number in kept], [offsets[number] for number in kept]

    def suffix(self, query: str) -> list[int]:
        """Tokens behind the cut: the instruction's last, the query's, the cue for the answer."""
        query_tokens = self.query(query)
        if self._bounded:
            return [*query_tokens, *self._after_query]
        # A newline may merge with the query's last sign: the two are tokenized together.
        return self._behind_instruction(query.strip(), self.prompt.after_query)

    def query(self, query: str) -> list[int]:
        """The suffix without the cue; white space around the query means nothing and is dropped."""
        query = query.strip()
        ids = self._behind_instruction(query)
        if not self._added.isdisjoint(ids):
            raise BackboneError(
                f"the query {query!r} holds text this tokenizer reads as a control token even as plain text; "
                "leave that text out"
            )
        return ids

    def describe(self) -> dict[str, Any]:
        """Everything that decides the tokens of a prompt and where it is cut, for a fingerprint."""
        stored = len(self._instruction) - 1
        parts = asdict(self.prompt)
        if not self.prompt.closing_tokens:  # keeps the fingerprint of prompts from before there were any
            del parts["closing_tokens"]
        return {**parts, "answer_ids": self.answers, "instruction_tokens_stored": stored}

    def _behind_instruction(self, query: str, more: str = "") -> list[int]:
        # An instruction's last blank belongs to the query's first token: without a query there is none.
        ids = self._plain_ids((self.prompt.instruction + query).rstrip(" ") + more)
        cut = len(self._instruction)
        if ids[:cut] != self._instruction:
            raise BackboneError(
                f"the query {query!r} does not tokenize the same behind the instruction as on its own, so "
                "stored pages cannot be used for it; start it with a letter or a digit"
            )
        return ids[cut - 1 :]

    def _answer(self, text: str) -> int:
        ids = self._ids(self.prompt.after_query + text)
        if not ids or ids[:-1] != self._after_query:
            raise BackboneError(
                f"the answer {text!r} is not one token behind {self.prompt.after_query!r}: {ids} against "
                f"{self._after_query}; this tokenizer does not fit the family's prompt"
            )
        return ids[-1]

    def _ids(self, text: str) -> list[int]:
        return list(self._whole.encode(text, add_special_tokens=False).ids)

    def _plain_ids(self, text: str) -> list[int]:
        return list(self._plain.encode(text, add_special_tokens=False).ids)

    def _require(self, holds: bool, part: str) -> None:
        if not holds:
            names = [token.content for token in self._whole.get_added_tokens_decoder().values()]
            raise BackboneError(
                f"the prompt part {part!r} is not bounded by a control token under this tokenizer, whose "
                f"added tokens are {names}; it does not fit the family's prompt"
            )


def _without_added_tokens(tokenizer: Tokenizer) -> Tokenizer:
    """Copy a tokenizer so that `<|im_end|>` is ten characters like any others."""
    state = json.loads(tokenizer.to_str())
    state.update(added_tokens=[], post_processor=None, truncation=None, padding=None)
    return Tokenizer.from_str(json.dumps(state))
