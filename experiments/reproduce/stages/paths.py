"""Where everything lies in the work folder, and whose it is."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ridgerank.atomic import replace_text_file
from ridgerank.errors import LineageMismatch

_LINEAGE = "lineage.json"


@dataclass(frozen=True, slots=True)
class Place:
    """The folders of one corpus."""

    work: Path
    family: str
    corpus: str

    @property
    def folder(self) -> Path:
        """The corpus."""
        return self.work / slug(self.family) / slug(self.corpus)

    def retriever(self, name: str) -> Path:
        """What a retriever made of it."""
        return self.folder / f"retriever-{slug(name)}"

    def backbone(self, name: str) -> Path:
        """What a backbone made of it."""
        return self.folder / f"backbone-{slug(name)}"

    def store(self, backbone: str) -> str:
        """The page store."""
        return str(self.backbone(backbone) / "store")


def slug(name: str) -> str:
    """A name as a folder: the last part of a path or repository, without signs a shell minds."""
    return re.sub(r"[^a-z0-9]+", "-", name.rstrip("/").rpartition("/")[2].casefold()).strip("-")


def made_with(folder: Path) -> str:
    """What a folder's contents are made with, as `require_same` noted it."""
    return (folder / _LINEAGE).read_text()


def require_same(
    folder: Path, at_hand: str, *, normalize: Callable[[str], str] = lambda noted: noted
) -> None:
    """Note what a folder's contents are made with; refuse to go on in one that something else made.

    `normalize` brings a note of an earlier version into today's form.
    """
    path = folder / _LINEAGE
    if not path.exists():
        with replace_text_file(path) as file:
            file.write(at_hand)
    elif (found := normalize(path.read_text())) != at_hand:
        raise LineageMismatch(
            f"{folder} was made with {found}, at hand is {at_hand}; use another --work folder, or remove it"
        )
