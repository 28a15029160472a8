"""The prompt, cut where the page ends and the query begins.

A stored page is only worth its name if the tokens before the cut and those after it are the tokens of the
whole prompt. Both ends of the query are therefore proven: it follows a newline of the instruction, checked
query by query, and is followed by a control token. What people type is tokenized as plain text: it can
never become a control token. This module knows no model.
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


@dataclass(frozen=True, slots=True)
class Prompt:
    """A family's prompt, in order; the page image goes between the first two parts."""

    before_image: str
    """The system turn, and the opening of the user's turn."""
    after_image: str
    """The control token that closes the image."""
    instruction: str
    """Plain text, the same for every page, ending in a newline."""
    after_query: str
    """A control token that ends the user's turn, and the cue for the answer."""
    answers: tuple[str, str]
    """The text of the answer token for a relevant page, then for an irrelevant one."""


class PromptTokens:
    """A prompt under a tokenizer: page tokens, suffix tokens, answer tokens."""

    def __init__(self, prompt: Prompt, backend: Tokenizer) -> None:
        """Prove what can be proven before a query is seen, or raise `BackboneError`."""
        self.prompt = prompt
        self._whole = backend
        self._plain = _without_added_tokens(backend)
        self._added = frozenset(backend.get_added_tokens_decoder())
        self._instruction = self._plain_ids(prompt.instruction)
        self._after_query = self._ids(prompt.after_query)
        closed = self._ids(prompt.after_image)
        self._require(closed[-1] in self._added, prompt.after_image)
        self._require(
            self._ids(prompt.after_image + prompt.instruction) == [*closed, *self._instruction],
            prompt.after_image + prompt.instruction,
        )
        self._require(self._after_query[0] in self._added, prompt.after_query)
        self.answers = self._answer(prompt.answers[0]), self._answer(prompt.answers[1])
        """Ids of the two answer tokens: yes, no."""

    def page(self, image: str) -> list[int]:
        """Tokens of the page part; `image` is the text that stands for the page's image."""
        opening = self._ids(self.prompt.before_image + image + self.prompt.after_image)
        return [*opening, *self._instruction]

    def suffix(self, query: str) -> list[int]:
        """Tokens of the query part; white space around the query means nothing and is dropped."""
        query = query.strip()
        ids = self._plain_ids(query)
        if self._plain_ids(self.prompt.instruction + query) != [*self._instruction, *ids]:
            raise BackboneError(
                f"the query {query!r} does not tokenize the same behind the instruction as on its own, so "
                "stored pages cannot be used for it; start it with a letter or a digit"
            )
        if not self._added.isdisjoint(ids):
            raise BackboneError(
                f"the query {query!r} holds text this tokenizer reads as a control token even as plain text; "
                "leave that text out"
            )
        return [*ids, *self._after_query]

    def describe(self) -> dict[str, Any]:
        """Everything that decides the tokens of a prompt, for a fingerprint."""
        return {**asdict(self.prompt), "answer_ids": self.answers}

    def _answer(self, text: str) -> int:
        ids = self._ids(self.prompt.after_query + text)
        if ids[:-1] != self._after_query:
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
