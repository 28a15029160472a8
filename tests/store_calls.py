"""Counts how often stores are asked for pages, and from where."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import pytest

from ridgerank.store.page_store import PageStore


@dataclass
class StoreCalls:
    """The calls of all stores so far."""

    lookups: list[int] = field(default_factory=list)
    """The number of names of each lookup."""
    in_event_loop: int = 0
    """Calls that held up an event loop."""

    def note_thread(self) -> None:
        """Note whether the calling thread runs an event loop."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return
        self.in_event_loop += 1


def count_store_calls(monkeypatch: pytest.MonkeyPatch) -> StoreCalls:
    """Count `lookup_many`, which `lookup` uses too, and `references`, from now on."""
    calls = StoreCalls()
    lookup_many, references = PageStore.lookup_many, PageStore.references

    def counting_lookup(store: PageStore, names: Iterable[str]) -> dict[str, str]:
        names = list(names)
        calls.lookups.append(len(names))
        calls.note_thread()
        return lookup_many(store, names)

    def counting_references(store: PageStore, page_ids: Sequence[str]) -> list[str]:
        calls.note_thread()
        return references(store, page_ids)

    monkeypatch.setattr(PageStore, "lookup_many", counting_lookup)
    monkeypatch.setattr(PageStore, "references", counting_references)
    return calls
