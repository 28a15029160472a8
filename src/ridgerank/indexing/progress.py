"""What indexing tells: its plan, its progress, its report; and who may look on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ridgerank.backbones.prefix import Prefix
from ridgerank.documents.failures import Failure
from ridgerank.documents.pages import PageRef


@dataclass(frozen=True, slots=True)
class IndexPlan:
    """What listing has found."""

    pages: int
    """Different pages under the paths."""
    stored: int
    """Of these, how many the store has already, vectors included where a retriever is given."""


@dataclass(frozen=True, slots=True)
class IndexReport:
    """What indexing has done."""

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
    """Further names of the same content: stored once, found by every name."""
    removed: int
    passed_over: int
    """Files in folders that are neither PDF nor image."""
    prefix_bytes: int
    """Bytes of the prefixes added."""
    seconds: float
    failures: tuple[Failure, ...]


class Watcher(Protocol):
    """Someone who looks on while pages are indexed."""

    def planned(self, plan: IndexPlan) -> None:
        """All paths are listed."""

    def committed(self, pages: int, nbytes: int) -> None:
        """So many pages more are safe in the store."""

    def failed(self, failure: Failure) -> None:
        """A file or page could not be read; the rest goes on."""


class EncodeHook(Protocol):
    """Someone who wants to see pages at full depth while they are encoded anyway."""

    def listed(self, refs: Mapping[str, PageRef], stored: frozenset[str]) -> None:
        """Every page under the paths, by id, and the ids of those that will not be encoded."""

    def wants(self, page_id: str) -> bool:
        """Whether to show this page: encoding it to full depth costs the layers above the exit layer."""

    def look(self, page_ids: Sequence[str], prefixes: Sequence[Prefix]) -> None:
        """Pages that were wanted, all layers, uncompressed; not yet committed to the store."""
