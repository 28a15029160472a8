"""Ids by content: the same bytes give the same ids, whatever the file's name and folder are.

The id of a page of a file is made from the file's digest and the page number, so ids need no rendering and
do not depend on the pixel budget. The id of a page that is an image in memory is made from its pixels.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from PIL.Image import Image

_BYTES = 32


@dataclass(frozen=True, slots=True)
class FileStamp:
    """What changes when a file is written. Cheap to compare; hashing the file again is not."""

    size: int
    modified_ns: int
    inode: int

    @classmethod
    def of(cls, path: Path) -> Self:
        """Take the stamp of the file as it is now."""
        status = path.stat()
        return cls(size=status.st_size, modified_ns=status.st_mtime_ns, inode=status.st_ino)


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


def _digest(kind: bytes, *parts: bytes) -> str:
    """Digest of parts, each preceded by its length so that no two lists of parts read the same."""
    digest = hashlib.blake2b(digest_size=_BYTES, person=kind)
    for part in parts:
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.hexdigest()
