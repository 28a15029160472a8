"""Writing files so that a killed process leaves the old one or the new one, never half of either."""

import glob
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO


@contextmanager
def replace_file(path: Path, *, durable: bool = True) -> Iterator[Path]:
    """Yield a scratch path beside `path`; on success the scratch file replaces `path` in one step.

    The scratch file is removed when the block fails, and an existing `path` is then left untouched. Unless
    `durable`, a loss of power may leave a file cut short: for files that can be computed again.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    os.close(descriptor)
    scratch = Path(name)
    try:
        yield scratch
        if durable:
            with scratch.open("rb") as file:
                os.fsync(file.fileno())
        scratch.chmod(0o666 & ~_umask())
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)


@contextmanager
def replace_text_file(path: Path) -> Iterator[TextIO]:
    """Like `replace_file`, as an open UTF-8 text file."""
    with replace_file(path) as scratch, scratch.open("w", encoding="utf-8", newline="\n") as file:
        yield file


def list_scratch_files(path: Path) -> list[Path]:
    """Scratch files beside `path`, left by a killed process or still being written."""
    return sorted(path.parent.glob(f".{glob.escape(path.name)}.*"))


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
