"""Who is told how far a stage is."""

from typing import Protocol


class StageProgress(Protocol):
    """A progress bar on a terminal, or nothing."""

    def start(self, what: str, total: int) -> None:
        """Begin to count `total` items."""

    def advance(self, count: int = 1) -> None:
        """Count `count` more items as done."""

    def echo(self, text: str) -> None:
        """Print a line."""


class SilentProgress:
    """Progress that is not shown."""

    def start(self, what: str, total: int) -> None:
        """Do nothing."""

    def advance(self, count: int = 1) -> None:
        """Do nothing."""

    def echo(self, text: str) -> None:
        """Do nothing."""
