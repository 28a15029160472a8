"""What a stream of documents holds beside pages: failures to read, and files that are no documents."""

import errno
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Failure:
    """A file or a page that could not be read; the stream goes on after it."""

    reference: str
    """The file, `report.pdf`, or the page, `report.pdf#3`, when only that page is lost."""
    reason: str
    """One line: what was found, and what to do about it."""
    path: Path | None = field(default=None, compare=False)
    """The file, where it is known."""

    def __str__(self) -> str:
        return f"{self.reference}: {self.reason}"


@dataclass(frozen=True, slots=True)
class SkippedFile:
    """A file in a folder that is neither a PDF nor an image: no failure, but counted."""

    reference: str


def describe_os_error(error: OSError) -> str:
    """Why the system cannot read a file, and what to do about it."""
    match error.errno:
        case errno.ENOENT | errno.ENOTDIR:
            return "not there; check the path"
        case errno.EACCES | errno.EPERM:
            return "may not be read by this user; grant the permission to read it"
        case errno.ELOOP:
            return "a symbolic link that leads back to itself; remove it"
        case _:
            return f"the system cannot read it ({error.strerror or error}); check the disk or the mount"
