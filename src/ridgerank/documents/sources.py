"""Paths become sources: files that may hold pages, each with a distinct name.

Knows suffixes and folders; opens no file.
"""

import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePath

from ridgerank.documents.failures import Failure, SkippedFile, describe_os_error

PDF_SUFFIXES = frozenset({".pdf"})
IMAGE_SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".tif", ".tiff", ".webp"})
SUFFIXES = PDF_SUFFIXES | IMAGE_SUFFIXES


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file that may hold pages."""

    path: Path
    name: str
    """The start of page references: a relative path, `/` between folders, one printable line."""

    @property
    def is_pdf(self) -> bool:
        """Whether its name says PDF; otherwise it says image."""
        return self.path.suffix.lower() in PDF_SUFFIXES


def find_sources(paths: Iterable[str | Path]) -> Iterator[SourceFile | SkippedFile | Failure]:
    """Files and, recursively, folders: in the order given, each folder sorted by name.

    One path: names are relative to it, or the file's own name. Several: names are relative to the folder
    they share, so that `2023/report.pdf` and `2024/report.pdf` stay apart. Hidden entries of a folder are
    skipped, and so are page stores: the pictures in them are no documents. A folder reached twice through
    symbolic links is read once, so loops end.
    """
    # Not `resolve`: a link keeps the name the user gave it.
    roots = _drop_nested_roots([Path(os.path.abspath(path)) for path in paths])  # noqa: PTH100
    base = _naming_base(roots)
    seen: set[tuple[int, int]] = set()
    levels: list[Iterator[Path]] = [iter(roots)]  # the folders on the way down; recursion would run out
    while levels:
        path = next(levels[-1], None)
        if path is None:
            levels.pop()
            continue
        explicit = len(levels) == 1
        name = _display_name(path, base)
        try:
            status = path.stat()
            entries = _entries(path, status, seen) if stat.S_ISDIR(status.st_mode) else None
        except OSError as error:
            is_expected = explicit or path.suffix.lower() in SUFFIXES or path.is_dir()
            yield Failure(name, describe_os_error(error)) if is_expected else SkippedFile(name)
            continue
        if entries is not None and ((explicit and _lies_in_store(path)) or is_store_folder(path)):
            yield (
                Failure(name, "a page store, or a part of one; name documents")
                if explicit
                else SkippedFile(name)
            )
        elif entries is not None:
            levels.append(entries)
        elif stat.S_ISREG(status.st_mode) and path.suffix.lower() in SUFFIXES:
            yield SourceFile(path=path, name=name)
        else:
            yield Failure(name, _describe_unusable(path, status.st_mode)) if explicit else SkippedFile(name)


def is_store_folder(folder: Path) -> bool:
    """Whether a folder is a Lance dataset, as every page store is."""
    return any((folder / "_versions").glob("*.manifest"))


def _lies_in_store(path: Path) -> bool:
    return any(map(is_store_folder, path.parents))


def _entries(folder: Path, status: os.stat_result, seen: set[tuple[int, int]]) -> Iterator[Path]:
    """List a folder, sorted, unless it was seen before; paths are built lazily from the names."""
    identity = (status.st_dev, status.st_ino)
    if identity in seen:
        return iter(())
    names = sorted(name for name in os.listdir(folder) if not name.startswith("."))  # noqa: PTH208
    seen.add(identity)
    return (folder / name for name in names)


def _drop_nested_roots(roots: list[Path]) -> list[Path]:
    """Roots without repetitions, and without those another root leads to."""
    unique = list(dict.fromkeys(roots))
    return [root for root in unique if not any(_is_walked(root, from_=other) for other in unique)]


def _is_walked(root: Path, *, from_: Path) -> bool:
    """Whether walking the folder `from_` comes by `root` and reads it."""
    if from_ not in root.parents or any(part.startswith(".") for part in root.relative_to(from_).parts):
        return False
    return root.is_dir() or (root.is_file() and root.suffix.lower() in SUFFIXES)


def _naming_base(roots: list[Path]) -> Path:
    """Choose the folder that names are relative to."""
    if len(roots) == 1 and not roots[0].is_dir():
        return roots[0].parent
    try:
        return Path(os.path.commonpath(roots))
    except ValueError:  # no paths, or no folder shared: two drives of Windows
        return Path()


def _describe_unusable(path: Path, mode: int) -> str:
    if not stat.S_ISREG(mode):
        return "neither a file nor a folder; name a file or a folder"
    description = f"a {path.suffix} file" if path.suffix else "a file without a suffix"
    return f"{description}; wanted one of {' '.join(sorted(SUFFIXES))}: convert it, or rename it if it is one"


def _display_name(path: Path, base: Path) -> str:
    relative: PurePath = path.relative_to(base) if path.is_relative_to(base) else path
    return escape_name(relative.as_posix() if relative.parts else path.name)


def escape_name(name: str) -> str:
    """A path on one line, in characters every store can hold; different paths stay different."""
    return "".join(
        character
        if character.isprintable() and character != "\\"
        else character.encode("unicode_escape").decode()
        for character in name
    )
