"""The plan, the progress and the report of indexing, and the hooks that are called meanwhile."""

from dataclasses import dataclass
from typing import Protocol

from ridgerank.documents.sources import Failure


@dataclass(frozen=True, slots=True)
class IndexPlan:
    """The result of listing."""

    pages: int
    """Different pages under the paths."""
    stored: int
    """Of these, how many the store has already, vectors included where a retriever is given."""


@dataclass(frozen=True, slots=True)
class IndexReport:
    """The result of indexing."""

    pages: int
    """Different pages under the paths."""
    added: int
    skipped: int
    """Pages the store had already."""
    embedded: int
    """Pages the store had already, that got vectors."""
    without_vectors: tuple[str, ...]
    """Stored pages that still have no vectors, by name: they are not among the documents given."""
    without_text: tuple[str, ...]
    """Stored pages that are blank to a model that reads text, by name."""
    copies: int
    """Further references to the same content: stored once, found by every reference."""
    removed: int
    """Pages that were not under the paths, with `prune`."""
    skipped_files: int
    """Files in folders that are neither PDF nor image."""
    prefix_bytes: int
    """Bytes of the prefixes added."""
    seconds: float
    failures: tuple[Failure, ...]
    replaced: int = 0
    """Pages of files that have changed since: removed."""
    renamed: tuple[str, ...] = ()
    """A line for each file whose name belongs to another one: its longer name, and why."""


class IndexHook(Protocol):
    """Called while pages are indexed, for progress bars and logs."""

    def planned(self, plan: IndexPlan) -> None:
        """All paths are listed."""

    def committed(self, pages: int, nbytes: int) -> None:
        """Further pages are committed to the store."""

    def failed(self, failure: Failure) -> None:
        """A file or page could not be read; indexing continues."""


class SilentIndexHook:
    """A hook that does nothing."""

    def planned(self, plan: IndexPlan) -> None:
        """Nothing is shown."""

    def committed(self, pages: int, nbytes: int) -> None:
        """Nothing is shown."""

    def failed(self, failure: Failure) -> None:
        """The report has the failure."""
