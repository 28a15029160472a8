"""Paths become sources: files that may hold pages, each with a name of its own.

Knows suffixes and folders; opens no file.
"""

import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePath

from ridgerank.documents.failures import Failure, PassedOver, reason_for

PDF_SUFFIXES = frozenset({".pdf"})
IMAGE_SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".tif", ".tiff", ".webp"})
SUFFIXES = PDF_SUFFIXES | IMAGE_SUFFIXES


@dataclass(frozen=True, slots=True)
class Source:
    """A file that may hold pages."""

    path: Path
    name: str
    """What references start with: relative, `/` between folders, one printable line."""

    @property
    def is_pdf(self) -> bool:
        """Whether its name says PDF; otherwise it says image."""
        return self.path.suffix.lower() in PDF_SUFFIXES


def find_sources(paths: Iterable[str | Path]) -> Iterator[Source | PassedOver | Failure]:
    """Files and, recursively, folders: in the order given, each folder sorted by name.

    One path: names are relative to it, or the file's own name. Several: names are relative to the folder
    they share, so that `2023/report.pdf` and `2024/report.pdf` stay apart. Hidden entries of a folder are
    skipped; a folder reached twice through symbolic links is read once, so loops end.
    """
    # Not `resolve`: a link keeps the name the user gave it.
    roots = _distinct([Path(os.path.abspath(path)) for path in paths])  # noqa: PTH100
    base = _base(roots)
    seen: set[tuple[int, int]] = set()
    levels: list[Iterator[Path]] = [iter(roots)]  # the folders on the way down; recursion would run out
    while levels:
        path = next(levels[-1], None)
        if path is None:
            levels.pop()
            continue
        explicit = len(levels) == 1
        name = _name(path, base)
        try:
            status = path.stat()
            entries = _entries(path, status, seen) if stat.S_ISDIR(status.st_mode) else None
        except OSError as error:
            wanted = explicit or path.suffix.lower() in SUFFIXES or path.is_dir()
            yield Failure(name, reason_for(error)) if wanted else PassedOver(name)
            continue
        if entries is not None:
            levels.append(entries)
        elif stat.S_ISREG(status.st_mode) and path.suffix.lower() in SUFFIXES:
            yield Source(path=path, name=name)
        else:
            yield Failure(name, _unfit(path, status.st_mode)) if explicit else PassedOver(name)


def _entries(folder: Path, status: os.stat_result, seen: set[tuple[int, int]]) -> Iterator[Path]:
    """List a folder, sorted, unless it was seen before; holds names only, paths are made when asked for."""
    identity = (status.st_dev, status.st_ino)
    if identity in seen:
        return iter(())
    names = sorted(name for name in os.listdir(folder) if not name.startswith("."))  # noqa: PTH208
    seen.add(identity)
    return (folder / name for name in names)


def _distinct(roots: list[Path]) -> list[Path]:
    """Roots without repetitions, and without those another root leads to."""
    unique = list(dict.fromkeys(roots))
    return [root for root in unique if not any(_reached(root, from_=other) for other in unique)]


def _reached(root: Path, *, from_: Path) -> bool:
    """Whether walking the folder `from_` comes by `root` and reads it."""
    if from_ not in root.parents or any(part.startswith(".") for part in root.relative_to(from_).parts):
        return False
    return root.is_dir() or (root.is_file() and root.suffix.lower() in SUFFIXES)


def _base(roots: list[Path]) -> Path:
    """Choose the folder that names are relative to."""
    if len(roots) == 1 and not roots[0].is_dir():
        return roots[0].parent
    try:
        return Path(os.path.commonpath(roots))
    except ValueError:  # no paths, or no folder shared: two drives of Windows
        return Path()


def _unfit(path: Path, mode: int) -> str:
    if not stat.S_ISREG(mode):
        return "neither a file nor a folder; name a file or a folder"
    found = f"a {path.suffix} file" if path.suffix else "a file without a suffix"
    return f"{found}; wanted one of {' '.join(sorted(SUFFIXES))}: convert it, or rename it if it is one"


def _name(path: Path, base: Path) -> str:
    """`path` as people read it: relative, on one line, in characters every store can hold."""
    relative: PurePath = path.relative_to(base) if path.is_relative_to(base) else path
    name = relative.as_posix() if relative.parts else path.name
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in name)
