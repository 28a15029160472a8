"""What is to be indexed: the pages under the paths, and the names of their documents."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

from ridgerank.documents.render import PageRef, list_pages
from ridgerank.documents.sources import Failure, SkippedFile, escape_name
from ridgerank.records import document_name


@dataclass(slots=True)
class Listing:
    """The pages under the paths, by id, each with all its references."""

    refs: dict[str, PageRef] = field(default_factory=dict)
    references: dict[str, list[str]] = field(default_factory=dict)
    documents: dict[Path, list[PageRef]] = field(default_factory=dict)
    """The pages of each file, copies of others included."""
    paths: dict[str, Path] = field(default_factory=dict)
    """The file of every name."""
    failures: list[Failure] = field(default_factory=list)
    skipped_files: int = 0

    @property
    def copies(self) -> int:
        """Further references to the same content."""
        return sum(len(references) - 1 for references in self.references.values())

    def number_batches(self, done: frozenset[str], size: int) -> Iterator[tuple[int, PageRef]]:
        """The pages to encode, each with the number of its batch in the whole list."""
        for position, (page_id, ref) in enumerate(self.refs.items()):
            if page_id not in done:
                yield position // size, ref

    def set_names(self, names: Mapping[Path, Sequence[str]]) -> None:
        """Give the pages of every file its names, the first of which is the page's source."""
        self.refs, self.references = {}, {}
        self.paths = {name: path for path, file_names in names.items() for name in file_names}
        for path, refs in self.documents.items():
            first, *aliases = names[path]
            for ref in refs:
                named = replace(ref, source=replace(ref.source, name=first))
                self.refs.setdefault(ref.page_id, named)
                references = (named.reference, *(f"{alias}#{ref.number}" for alias in aliases))
                self.references.setdefault(ref.page_id, []).extend(references)


def list_documents(
    paths: Iterable[str | Path], failed: Callable[[Failure], None], *, processes: int
) -> Listing:
    """List all pages under the paths; `failed` is called with what could not be read."""
    listing = Listing()
    for item in list_pages(paths, processes=min(processes, 2)):  # quick compared with rendering
        match item:
            case PageRef():
                listing.documents.setdefault(item.source.path, []).append(item)
            case Failure():
                listing.failures.append(item)
                failed(item)
            case SkippedFile():
                listing.skipped_files += 1
    listing.set_names({path: [refs[0].source.name] for path, refs in listing.documents.items()})
    return listing


def name_documents(
    listing: Listing, owners: Mapping[str, str], stored: Mapping[str, tuple[str, ...]]
) -> tuple[str, ...]:
    """Give every file of the listing its names; returns a line for each file that got a longer one.

    `owners` says which file a name belongs to, `stored` has the references of every page of the store.
    """
    page_ids_by_name: dict[str, set[str]] = {}
    for page_id, references in stored.items():
        for reference in references:
            page_ids_by_name.setdefault(document_name(reference), set()).add(page_id)
    names_of: dict[str, list[str]] = {}
    for name, owner in owners.items():
        if name in page_ids_by_name:
            names_of.setdefault(owner, []).append(name)
    taken = page_ids_by_name.keys() | {refs[0].source.name for refs in listing.documents.values()}
    names: dict[Path, list[str]] = {}
    renamed: list[str] = []
    for path, refs in listing.documents.items():
        name, file = refs[0].source.name, os.path.realpath(path)
        owner = owners.get(name, file)
        is_free = owner == file or name not in page_ids_by_name
        if not is_free and page_ids_by_name[name] <= {ref.page_id for ref in refs}:
            is_free = not Path(owner).exists()  # the file was moved
        aliases = names_of.get(file, [])
        if not is_free and not aliases:
            longer = next(each for each in _longer_names(path, name) if each not in taken)
            renamed.append(f"{path} is stored as {longer}: the shorter name is that of {owner}")
            aliases = [longer]
            taken.add(longer)
        names[path] = list(dict.fromkeys([name, *aliases] if is_free else aliases))
    listing.set_names(names)
    return tuple(renamed)


def _longer_names(path: Path, name: str) -> Iterator[str]:
    """The name with more and more folders in front of it, then numbered."""
    parts = path.parts
    for start in range(len(parts) - len(Path(name).parts) - 1, 0, -1):
        yield escape_name("/".join(parts[start:]))
    for number in count(2):
        yield f"{name} ({number})"
