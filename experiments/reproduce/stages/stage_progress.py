"""Someone who looks on while stages run."""

from typing import Protocol


class Watcher(Protocol):
    """A bar on a terminal, or nobody."""

    def start(self, what: str, total: int) -> None:
        """Begin to count something."""

    def advance(self, count: int = 1) -> None:
        """So many more are done."""

    def say(self, text: str) -> None:
        """Something worth a line."""


class Nobody:
    """A watcher that says nothing."""

    def start(self, what: str, total: int) -> None:
        """Nothing."""

    def advance(self, count: int = 1) -> None:
        """Nothing."""

    def say(self, text: str) -> None:
        """Nothing."""
