"""How much of a page's text is read, and which part of a page that is longer."""

import re
from dataclasses import dataclass
from typing import Self

from ridgerank.errors import BackboneError

POLICIES = ("head", "ends")
"""`head`: the beginning. `ends`: three quarters from the beginning, the rest from the end of the page."""


@dataclass(frozen=True, slots=True)
class TextBudget:
    """A policy and a number of tokens: `TextBudget.parse("head 512")`."""

    policy: str = "head"
    tokens: int = 512

    def __post_init__(self) -> None:
        if self.policy not in POLICIES:
            raise BackboneError(f"no policy {self.policy!r} for long pages, known: {', '.join(POLICIES)}")
        if self.tokens < 1:
            raise BackboneError(f"a budget of {self.tokens} tokens a page, wanted at least 1")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what `str` wrote: a policy, a space, a number of tokens."""
        matched = re.fullmatch(r"(\w+) (\d+)", text.strip())
        if matched is None:
            raise BackboneError(f"a page's text spelled {text!r}, wanted a policy and tokens: 'head 512'")
        return cls(matched[1], int(matched[2]))

    def __str__(self) -> str:
        return f"{self.policy} {self.tokens}"

    def choose(self, total: int) -> list[int]:
        """Which of `total` tokens are read, in order: all of them where they fit."""
        if total <= self.tokens:
            return list(range(total))
        tail = self.tokens // 4 if self.policy == "ends" else 0
        return [*range(self.tokens - tail), *range(total - tail, total)]
