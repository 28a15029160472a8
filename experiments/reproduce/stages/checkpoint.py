"""Where results are in the work folder, which model computed them, and how they get there part by part.

Each part is saved at once: a killed run loses one part at most.
"""

import hashlib
import re
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ridgerank.atomic import replace_file, replace_text_file
from ridgerank.cli._console import Bar
from ridgerank.errors import LineageMismatch
from ridgerank.lineage import Lineage, list_differences
from ridgerank.store.vector_columns import VectorOrigin

Arrays: TypeAlias = dict[str, NDArray[Any]]


def compute_in_parts(
    folder: Path,
    count: int,
    size: int,
    compute: Callable[[range], Arrays],
    *,
    done: Callable[[int], None] = lambda items: None,
) -> Arrays:
    """Arrays whose first axis runs over `count` items, `size` of them computed at a time.

    Parts that are in `folder` are read, the others computed and saved. `done` is called for every part.
    """
    parts = []
    for start in range(0, count, size):
        items = range(start, min(start + size, count))
        path = folder / f"{start:06d}.npz"
        if not path.exists():
            save_arrays(path, compute(items))
        with np.load(path) as saved:
            parts.append(dict(saved))
        done(len(items))
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def save_arrays(path: Path, arrays: Arrays) -> None:
    """Write a checkpoint whole or not at all."""
    with replace_file(path) as scratch, scratch.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)


def is_complete(folder: Path, count: int, size: int) -> bool:
    """Whether all parts are there, so that no model is needed."""
    return all((folder / f"{start:06d}.npz").exists() for start in range(0, count, size))


def short_digest(texts: Iterable[str]) -> str:
    """A short name for what a stage was computed from: other queries get another folder."""
    whole = hashlib.blake2b(digest_size=6)
    for text in texts:
        whole.update(f"{len(text)} {text}".encode())
    return whole.hexdigest()


_LINEAGE = "lineage.json"


@dataclass(frozen=True, slots=True)
class CorpusPaths:
    """The folders of one corpus."""

    work: Path
    family: str
    corpus: str

    @property
    def folder(self) -> Path:
        """The corpus."""
        return self.work / slug(self.family) / slug(self.corpus)

    def retriever(self, name: str) -> Path:
        """The results of a retriever."""
        return self.folder / f"retriever-{slug(name)}"

    def backbone(self, name: str) -> Path:
        """The results of a backbone."""
        return self.folder / f"backbone-{slug(name)}"

    def store(self, backbone: str) -> str:
        """The page store."""
        return str(self.backbone(backbone) / "store")


def slug(name: str) -> str:
    """A name as a folder: the last part of a path or repository, in letters, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", name.rstrip("/").rpartition("/")[2].casefold()).strip("-")


def read_folder_lineage(folder: Path) -> str:
    """What computed the contents of a folder, as `require_lineage` wrote it."""
    return (folder / _LINEAGE).read_text()


def require_lineage(folder: Path, at_hand: Lineage | VectorOrigin) -> None:
    """Write what computes the contents of a folder; refuse a folder that something else computed.

    The same model may have been loaded from another place.
    """
    path = folder / _LINEAGE
    if not path.exists():
        with replace_text_file(path) as file:
            file.write(at_hand.to_json())
        return
    recorded = type(at_hand).from_json(path.read_text())
    place = "backbone" if isinstance(at_hand, Lineage) else "source"
    if list_differences(asdict(recorded), asdict(at_hand), ignored=(place,)):
        raise LineageMismatch(
            f"{folder} was made with {recorded.to_json()}, at hand is {at_hand.to_json()}; "
            "use another --work folder, or remove it"
        )


class SilentProgress:
    """Progress that is not shown."""

    def start(self, what: str, total: int) -> None:
        """Do nothing."""

    def advance(self, count: int = 1) -> None:
        """Do nothing."""

    def echo(self, text: str) -> None:
        """Do nothing."""


StageProgress: TypeAlias = Bar | SilentProgress
"""A progress bar on a terminal, or nothing."""
