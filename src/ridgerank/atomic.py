"""Writing files so that a killed process leaves the old one or the new one, never half of either.

A symbolic link is followed and stays. A pipe, a terminal and a descriptor (`/dev/stdout`) are written to.
Files that can be made again lie in the user's cache, or the folder that RIDGERANK_CACHE names.
"""

import errno
import glob
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from ridgerank.errors import WriteError

logger = logging.getLogger(__name__)

_NAME_CHARACTERS = 60
"""Of a file's name in that of its scratch file, which may not be too long for the disk."""


@contextmanager
def replace_file(path: Path) -> Iterator[Path]:
    """Yield a scratch file that replaces `path` in one step; after an error `path` stays as it was."""
    with say_what_cannot_be_written(path):
        if is_special(path):
            with tempfile.TemporaryDirectory(prefix="ridgerank-") as folder:
                scratch = Path(folder) / "output"
                yield scratch
                with scratch.open("rb") as source, path.open("ab") as special:
                    shutil.copyfileobj(source, special)
            return
        target = Path(os.path.realpath(path)) if path.is_symlink() else path
        target.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix=_scratch_prefix(target), dir=target.parent)
        os.close(descriptor)
        scratch = Path(name)
        try:
            yield scratch
            with scratch.open("rb") as file:
                os.fsync(file.fileno())
            scratch.chmod(_permissions(target))
            scratch.replace(target)
        finally:
            scratch.unlink(missing_ok=True)


@contextmanager
def replace_text_file(path: Path) -> Iterator[TextIO]:
    """Like `replace_file`, as an open UTF-8 text file."""
    with replace_file(path) as scratch, scratch.open("w", encoding="utf-8", newline="\n") as file:
        yield file


def is_special(path: Path) -> bool:
    """Whether a path is appended to, not replaced: a pipe, a terminal, `/dev/stdout`; folders are refused."""
    if path.is_dir():
        raise WriteError(f"{path} is a folder; name a file to write to")
    return path.parent in _DESCRIPTORS or (path.exists() and not path.is_file())


_DESCRIPTORS = (Path("/dev"), Path("/dev/fd"), Path("/proc/self/fd"))


@contextmanager
def say_what_cannot_be_written(path: Path) -> Iterator[None]:
    """Turn what the system raises (a full disk, no permission) into a `WriteError` that names the file."""
    try:
        yield
    except (WriteError, BrokenPipeError):  # that a reader has gone is no fault of the file
        raise
    except OSError as error:
        reason = error.strerror or str(error)
        raise WriteError(
            f"{path} cannot be written: {reason}; free the disk, or name another file"
        ) from error


_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)


def lock_file(descriptor: int, *, wait: bool) -> bool:
    """Lock an open file until it is closed; False, with a warning, if its disk has no locks.

    If another process has it, `wait`, or raise `BlockingIOError`.
    """
    try:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (ImportError, OSError) as error:
        if isinstance(error, OSError) and error.errno not in _NO_LOCKS:
            raise
        logger.warning("files cannot be locked here (%s); let only one process write at a time", error)
        return False
    return True


def list_scratch_files(path: Path) -> list[Path]:
    """Scratch files beside `path`, left by a killed process or still being written."""
    return sorted(path.parent.glob(f"{glob.escape(_scratch_prefix(path))}*"))


def _scratch_prefix(path: Path) -> str:
    return f".{path.name[:_NAME_CHARACTERS]}."


def _permissions(path: Path) -> int:
    """Those of the file that is replaced, else what any new file gets."""
    try:
        return path.stat().st_mode & 0o777
    except OSError:
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask


def cache_folder(kind: str) -> Path:
    """The folder for files of this kind; it need not exist yet."""
    named = os.environ.get("RIDGERANK_CACHE")
    if named:
        return Path(named) / kind
    home = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))  # noqa: PTH111
    if not home.is_absolute():
        raise WriteError("this user has no home folder; name a folder for the cache in RIDGERANK_CACHE")
    return home / "ridgerank" / kind
