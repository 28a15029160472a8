"""The pages under the paths: found, named, cut into batches, rendered."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from ridgerank.documents.failures import Failure, PassedOver
from ridgerank.documents.ocr import Recognizer, recognize
from ridgerank.documents.pages import PageRef, list_pages, render_pages
from ridgerank.indexing.progress import Watcher
from ridgerank.records import Page


@dataclass(slots=True)
class Listing:
    """The pages under the paths, by id, each with all its names."""

    refs: dict[str, PageRef] = field(default_factory=dict)
    names: dict[str, list[str]] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    passed_over: int = 0

    @property
    def copies(self) -> int:
        """Further names of the same content."""
        return sum(len(names) - 1 for names in self.names.values())


def list_documents(paths: Iterable[str | Path], watcher: Watcher, *, processes: int) -> Listing:
    """All pages under the paths; what cannot be read is said and left out."""
    listing = Listing()
    for found in list_pages(paths, processes=min(processes, 2)):
        match found:
            case PageRef():
                listing.refs.setdefault(found.page_id, found)
                listing.names.setdefault(found.page_id, []).append(found.reference)
            case Failure():
                listing.failures.append(found)
                watcher.failed(found)
            case PassedOver():
                listing.passed_over += 1
    return listing


def batches(listing: Listing, done: frozenset[str], size: int) -> Iterator[tuple[int, PageRef]]:
    """The pages to read, each with the number of its batch in the whole list."""
    for place, (page_id, ref) in enumerate(listing.refs.items()):
        if page_id not in done:
            yield place // size, ref


def rendered(
    numbered: Iterable[tuple[int, PageRef]],
    failed: Callable[[Failure], None],
    recognizer: Recognizer | None,
    max_pixels: int,
    processes: int,
) -> Iterator[list[Page]]:
    """Pages with their images, batch by batch; a page that cannot be rendered is left out and said."""
    batch_of: dict[str, int] = {}

    def refs() -> Iterator[PageRef]:
        for number, ref in numbered:
            batch_of[ref.page_id] = number
            yield ref

    def pages() -> Iterator[Page]:
        images = render_pages(refs(), max_pixels=max_pixels, processes=processes)
        for read in images if recognizer is None else recognize(images, recognizer):
            if isinstance(read, Page):
                yield read
            elif isinstance(read, Failure):
                failed(read)

    for _, batch in groupby(pages(), key=lambda page: batch_of.pop(page.page_id)):
        yield list(batch)


@dataclass(frozen=True, slots=True)
class Task:
    """What is left to do once the documents are listed."""

    listing: Listing
    stored: frozenset[str]
    """Pages that have their prefix."""
    done: frozenset[str]
    """Pages that have all they need."""

    def failed(self, watcher: Watcher, failure: Failure) -> None:
        """Note a page that could not be read."""
        self.listing.failures.append(failure)
        watcher.failed(failure)
