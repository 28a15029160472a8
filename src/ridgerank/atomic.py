"""Writing files so that a killed process leaves the old one or the new one, never half of either."""

import glob
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO


@contextmanager
def replacing(path: Path, *, durable: bool = True) -> Iterator[Path]:
    """Yield a scratch path beside `path`; on success it takes the place of `path` in one step.

    The scratch file is removed when the block fails, and an existing `path` is then left untouched. Unless
    `durable`, a machine that loses power may be left with a file cut short: for what can be made again.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    os.close(descriptor)
    scratch = Path(name)
    try:
        yield scratch
        if durable:
            with scratch.open("rb") as written:
                os.fsync(written.fileno())
        scratch.chmod(0o666 & ~_umask())
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)


@contextmanager
def replacing_text(path: Path) -> Iterator[TextIO]:
    """Like `replacing`, as an open UTF-8 text file."""
    with replacing(path) as scratch, scratch.open("w", encoding="utf-8", newline="\n") as file:
        yield file


def leftovers(path: Path) -> list[Path]:
    """Scratch files beside `path` that a killed process left (or a living one still writes)."""
    return sorted(path.parent.glob(f".{glob.escape(path.name)}.*"))


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
