"""Which names the documents of a listing get in a store: a name belongs to one file.

A file keeps the names it has. A file whose name belongs to another one gets its folder in front: indexing
`a/report.pdf` and then `b/report.pdf` gives `report.pdf` and `b/report.pdf`. A file that was moved, its
content unchanged, takes its name along.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from ridgerank.documents.sources import escape_name
from ridgerank.indexing.listing import Listing
from ridgerank.records import document_name


@dataclass(frozen=True, slots=True)
class RenamedDocument:
    """A file that is stored under a longer name than its own, which belongs to another file."""

    path: Path
    name: str
    owner: str
    """The file that has the shorter name."""

    def __str__(self) -> str:
        return f"{self.path} is stored as {self.name}: the shorter name is that of {self.owner}"


def name_documents(
    listing: Listing, owners: Mapping[str, str], stored: Mapping[str, tuple[str, ...]]
) -> tuple[RenamedDocument, ...]:
    """Give every file of the listing its names; returns the files that got a longer one.

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
    renamed: list[RenamedDocument] = []
    for path, refs in listing.documents.items():
        name, file = refs[0].source.name, str(path.resolve())
        owner = owners.get(name, file)
        is_free = owner == file or name not in page_ids_by_name
        if not is_free and page_ids_by_name[name] <= {ref.page_id for ref in refs}:
            is_free = not Path(owner).exists()  # the file was moved
        aliases = names_of.get(file, [])
        if not is_free and not aliases:
            longer = next(each for each in _longer_names(path, name) if each not in taken)
            renamed.append(RenamedDocument(path, longer, owner))
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
