"""One writer at a time on a local disk. The system frees the lock when its process dies, kill -9 included."""

import errno
import fcntl
import os
import stat
import weakref
from pathlib import Path

from ridgerank.errors import StoreError

LOCK_NAME = "_writer.lock"


class WriterLock:
    """An exclusive lock on a store directory."""

    def __init__(self, root: Path) -> None:
        self._descriptor = _open_lock(root / LOCK_NAME)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(self._descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(self._descriptor)
            raise StoreError(
                f"another process (id {holder}) is writing to the page store at {root}; "
                "wait until it is done, or stop it"
            ) from error
        _LOCKS.add(self)
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Free the store for the next writer. Releasing twice is harmless."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _open_lock(path: Path) -> int:
    """Open the file of the lock, which is written to: never one that lies elsewhere under another name."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
            raise
        raise StoreError(f"{path} is no file of its own; remove it, no page is lost by that") from error
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
        os.close(descriptor)
        raise StoreError(f"{path} is no file of its own; remove it, no page is lost by that")
    return descriptor


_LOCKS: weakref.WeakSet[WriterLock] = weakref.WeakSet()


def _release_in_child() -> None:
    # A forked worker that outlives its killed parent must not keep the store locked.
    for lock in tuple(_LOCKS):
        lock.release()


os.register_at_fork(after_in_child=_release_in_child)
