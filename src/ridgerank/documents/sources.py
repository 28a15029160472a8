"""The files to be read, in the order in which they are found, and what names them.

Also here: what could not be read (`Failure`), the limits of a file, the ids of pages and documents' metadata.
"""

import errno
import hashlib
import json
import logging
import math
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from ridgerank.errors import DocumentError

if TYPE_CHECKING:
    from PIL.Image import Image


logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Failure:
    """A file or a page that could not be read; the stream goes on after it."""

    reference: str
    """The file, `report.pdf`, or the page, `report.pdf#3`, when only that page is lost."""
    reason: str
    path: Path | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return f"{self.reference}: {self.reason}"


@dataclass(frozen=True, slots=True)
class SkippedFile:
    """A file in a folder that is neither a PDF nor an image: no failure, but counted."""

    reference: str


_REASONS = {
    errno.ENOENT: "not there; check the path",
    errno.ENOTDIR: "not there; check the path",
    errno.EACCES: "may not be read by this user; grant the permission to read it",
    errno.EPERM: "may not be read by this user; grant the permission to read it",
    errno.ENAMETOOLONG: "its path is longer than the system allows; shorten it",
    errno.ELOOP: "a symbolic link that leads back to itself; remove it",
}


def describe_os_error(error: OSError | ValueError) -> str:
    """Why the system cannot read a file, and what to do about it; a NUL in its path is a `ValueError`."""
    if isinstance(error, ValueError):
        return f"no path of a file ({error}); name another"
    other = f"the system cannot read it ({error.strerror or error}); check the disk or the mount"
    return _REASONS.get(error.errno or 0, other)


MAX_FILE_BYTES = 4 << 30
MAX_DOCUMENT_PAGES = 50_000
MAX_IMAGE_PIXELS = 150_000_000
"""An A0 poster scanned at 300 dpi has 139 million; at the limit a process needs 1.2 GB for a moment."""
MAX_ASPECT_RATIO = 200
"""Beyond it the image processors of the backbones refuse too, and nothing could be read anyway."""


def fit_within_pixels(width: float, height: float, max_pixels: int) -> tuple[int, int]:
    """The largest whole size of this shape within `max_pixels`; no area or a thread is refused."""
    if not (math.isfinite(width) and math.isfinite(height) and width > 0 and height > 0):
        raise DocumentError(f"a page of {width:g} x {height:g}, which has no area; repair or remove it")
    if max(width, height) > MAX_ASPECT_RATIO * min(width, height):
        raise DocumentError(
            f"a page of {width:g} x {height:g}, longer than {MAX_ASPECT_RATIO} times its width; cut it up"
        )
    ratio = width / height
    columns = min(max(1, math.floor(math.sqrt(max_pixels * ratio))), max_pixels)
    rows = min(max(1, math.floor(math.sqrt(max_pixels / ratio))), max_pixels // columns)
    return columns, rows


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
    skipped, and so are page stores. A folder reached twice through links is read once, so loops end.
    """
    roots = list(dict.fromkeys(_absolute(Path(path)) for path in paths))
    base = _naming_base(roots)
    seen: set[tuple[int, int]] = set()
    found: set[Path] = set()
    levels: list[Iterator[Path]] = [iter(roots)]  # the folders on the way down; recursion would run out
    while levels:
        path = next(levels[-1], None)
        if path is None:
            levels.pop()
            continue
        explicit = len(levels) == 1
        relative = path.relative_to(base) if path.is_relative_to(base) else path
        name = escape_name(relative.as_posix() if relative.parts else path.name)
        try:
            status = path.stat()
            entries = _entries(path, status, seen) if stat.S_ISDIR(status.st_mode) else None
        except (OSError, ValueError) as error:
            # A link to nothing matters if its name is a document's; what may not be looked at may hold some.
            is_link = getattr(error, "errno", None) in (errno.ENOENT, errno.ELOOP)
            is_expected = explicit or path.suffix.lower() in SUFFIXES or not is_link
            yield Failure(name, describe_os_error(error)) if is_expected else SkippedFile(name)
            continue
        if entries is not None and (
            is_store_folder(path) or (explicit and any(map(is_store_folder, path.parents)))
        ):
            reason = "a page store, or a part of one; name documents"
            yield Failure(name, reason) if explicit else SkippedFile(name)
        elif entries is not None:
            levels.append(entries)
        elif stat.S_ISREG(status.st_mode) and path.suffix.lower() in SUFFIXES:
            if path not in found:
                found.add(path)
                yield SourceFile(path=path, name=name)
        else:
            yield Failure(name, _describe_unusable(path, status.st_mode)) if explicit else SkippedFile(name)


def is_store_folder(folder: Path) -> bool:
    """Whether a folder is a Lance dataset, as every page store is."""
    try:
        return any(name.endswith(".manifest") for name in os.listdir(folder / "_versions"))  # noqa: PTH208
    except OSError:
        return False


def _entries(folder: Path, status: os.stat_result, seen: set[tuple[int, int]]) -> Iterator[Path]:
    """List a folder, sorted, unless it was seen before; paths are built lazily from the names."""
    identity = (status.st_dev, status.st_ino)
    if identity in seen:
        return iter(())
    names = sorted(name for name in os.listdir(folder) if not name.startswith("."))  # noqa: PTH208
    seen.add(identity)
    return (folder / name for name in names)


def _naming_base(roots: list[Path]) -> Path:
    """Choose the folder that names are relative to."""
    if len(roots) == 1 and not os.path.isdir(roots[0]):  # noqa: PTH112
        return roots[0].parent
    try:
        return Path(os.path.commonpath(roots))
    except ValueError:  # no paths, or no folder shared: two drives of Windows
        return Path()


def _describe_unusable(path: Path, mode: int) -> str:
    if not stat.S_ISREG(mode):
        return "neither a file nor a folder; name a file or a folder"
    expected = " ".join(sorted(SUFFIXES))
    return f"a {path.suffix or 'plain'} file; expected one of {expected}: convert it, or rename it"


def escape_name(name: str) -> str:
    """A path on one line, in characters every store can hold; different paths stay different."""
    return "".join(
        character
        if character.isprintable() and character != "\\"
        else character.encode("unicode_escape").decode()
        for character in name
    )


_BYTES = 32


FileStamp = tuple[int, int, int]
"""Size, time in ns and inode of a file: what changes when it is written, cheaper to compare than its hash."""


def stamp_file(path: Path) -> FileStamp:
    """Take the stamp of the file as it is now."""
    status = path.stat()
    return status.st_size, status.st_mtime_ns, status.st_ino


def digest_file(path: Path) -> bytes:
    """256-bit digest of a file's bytes, read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=_BYTES)).digest()


def digest_bytes(data: bytes) -> bytes:
    """`digest_file` of a file held in memory."""
    return hashlib.blake2b(data, digest_size=_BYTES).digest()


def file_page_id(file_digest: bytes, number: int) -> str:
    """Id of page `number`, counted from 1, of the file with this digest."""
    return _digest(b"page of file", file_digest, number.to_bytes(8, "big"))


def image_page_id(image: "Image", text: str) -> str:
    """Id of a page given as an image in memory, with the text that goes with it."""
    header = f"{image.mode} {image.width} {image.height}"
    return _digest(b"page image", header.encode(), image.tobytes(), text.encode("utf-8", "surrogatepass"))


def text_page_id(text: str) -> str:
    """Id of a page that is a text and has no image."""
    return _digest(b"page text", text.encode("utf-8", "surrogatepass"))


def _digest(kind: bytes, *parts: bytes) -> str:
    """Digest of parts, each preceded by its length so that no two lists of parts read the same."""
    digest = hashlib.blake2b(digest_size=_BYTES, person=kind)
    for part in parts:
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.hexdigest()


SOURCE_KEYS = ("source", "file_path", "file_name", "filename")
"""Where loaders put a file: LangChain, Haystack and LlamaIndex, LlamaIndex, Unstructured."""
COUNTED_FROM_ONE = ("page_number", "page_label")
"""Where loaders put a page's number from 1: Haystack and Unstructured, LlamaIndex."""


def chunk_page_names(metadata: Mapping[str, object], *, first_page: int = 1) -> tuple[str, ...]:
    """The references that the page of a text pipeline's chunk may have: its metadata names file and number.

    `page` is counted from `first_page`, which is 0 for LangChain's loaders. Without it, the number is read
    from `page_number` or `page_label`, counted from 1. Empty if metadata names no file or no number.
    """
    number = _chunk_page_number(metadata, first_page)
    if number is None or number < 1:
        return ()
    sources = [source for key in SOURCE_KEYS if isinstance(source := metadata.get(key), str) and source]
    return tuple(dict.fromkeys(name for source in sources for name in source_page_names(source, number)))


def _chunk_page_number(metadata: Mapping[str, object], first_page: int) -> int | None:
    page = metadata.get("page")
    if isinstance(page, int) and not isinstance(page, bool):
        return page - first_page + 1
    for key in COUNTED_FROM_ONE:
        number = metadata.get(key)
        if isinstance(number, int | str) and str(number).isascii() and str(number).isdigit():
            return int(number)
    return None


def source_page_names(source: str, number: int) -> tuple[str, ...]:
    """The references that page `number` (from 1) of a file may have: with its folders, and without."""
    return tuple(dict.fromkeys((f"{source}#{number}", f"{PurePath(source).name}#{number}")))


METADATA_FILE = "metadata.jsonl"


class DocumentMetadata:
    """What `metadata.jsonl` says of a document: the nearest file in its folder or above that names it."""

    def __init__(self, paths: Iterable[str | Path]) -> None:
        """Read the files in these folders, or beside these files; one that is not as expected is refused."""
        roots = map(_absolute, map(Path, paths))
        folders = {root if os.path.isdir(root) else root.parent for root in roots}  # noqa: PTH112
        self._by_folder = {folder: _read_metadata(folder / METADATA_FILE) for folder in folders}

    def fields(self, document: Path) -> Mapping[str, Any]:
        """The fields of a document, none if no file names it."""
        for folder in document.parents:
            if folder not in self._by_folder:
                try:
                    self._by_folder[folder] = _read_metadata(folder / METADATA_FILE)
                except DocumentError as error:  # in a folder that nobody named: another program's, perhaps
                    logger.warning("not read: %s", error)
                    self._by_folder[folder] = {}
            if (fields := self._by_folder[folder].get(document)) is not None:
                return fields
        return {}


def _read_metadata(file: Path) -> dict[Path, dict[str, Any]]:
    """Path of a document → its fields; `document` is a path relative to the file."""
    if not os.path.isfile(file):  # noqa: PTH113
        return {}
    metadata: dict[Path, dict[str, Any]] = {}
    try:
        lines = file.read_text(encoding="utf-8-sig").split("\n")
    except OSError as error:
        raise DocumentError(f"{file}: {describe_os_error(error)}") from error
    except UnicodeDecodeError as error:
        raise DocumentError(f"{file}: not UTF-8 text ({error.reason} at byte {error.start})") from error
    for number, line in enumerate(lines, start=1):
        if line.strip():
            fields = dict(_parse_line(line, f"{file}, line {number}"))
            metadata[_absolute(file.parent / fields.pop("document"))] = fields
    return metadata


def _absolute(path: Path) -> Path:
    """Not `resolve`: a link keeps the name the user gave it."""
    return Path(os.path.abspath(path))  # noqa: PTH100


def _parse_line(line: str, where: str) -> Mapping[str, Any]:
    try:
        fields = json.loads(line)
        json.dumps(fields, ensure_ascii=False).encode()  # half a character cannot be stored
    except (ValueError, RecursionError) as error:
        raise DocumentError(f"{where}: not JSON ({error}); expected an object with document") from error
    if not isinstance(fields, dict) or not isinstance(fields.get("document"), str):
        raise DocumentError(f"{where}: {line.strip()[:60]!r}, expected an object with document and more")
    return fields
