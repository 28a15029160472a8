"""Small files beside a store on an object store, through the client that Lance itself uses.

Lance takes its credentials from the environment: this module never handles them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

from lance.file import LanceFileSession

from ridgerank.store import lance_dataset

_UPLOAD_INTERVAL_S = 10.0
"""A killed process loses at most what it wrote in this time."""


class RemoteFolder:
    """The objects right under a URL, by name."""

    def __init__(self, uri: str, name: str = "") -> None:
        self.url = "/".join(part for part in (uri.rstrip("/"), name) if part)
        with lance_dataset.wrap_errors(f"opening {self.url}"):
            self._session = LanceFileSession(self.url)

    def names(self) -> list[str]:
        """Sorted; empty where there is no such folder."""
        with lance_dataset.wrap_errors(f"listing {self.url}"):
            return sorted(name for name in self._session.list() if "/" not in name)

    def get(self, name: str, folder: Path) -> bool:
        """Copy one object into a local folder; False where there is no such object."""
        with lance_dataset.wrap_errors(f"reading {self.url}/{name}"):
            if not self._session.contains(name):
                return False
            self._session.download_file(name, str(folder / name))
            return True

    def put(self, path: Path) -> None:
        """Upload a local file, replacing the object of its name: whole, or not at all."""
        with lance_dataset.wrap_errors(f"writing {self.url}/{path.name}"):
            self._session.upload_file(str(path), path.name)

    def fetch(self, folder: Path, *, suffix: str = "") -> None:
        """Copy everything whose name ends in `suffix` into a local folder."""
        for name in self.names():
            if name.endswith(suffix):
                self.get(name, folder)


@contextmanager
def upload_changes(remote: RemoteFolder, folder: Path) -> Iterator[None]:
    """Upload what changes in a local copy: every few seconds, and at the end, also after an error."""
    uploaded = _stamps(folder)
    done = Event()
    failures: list[BaseException] = []

    def upload() -> None:
        current = _stamps(folder)
        for path in sorted(path for path, stamp in current.items() if uploaded.get(path) != stamp):
            remote.put(path)
            uploaded[path] = current[path]

    def upload_regularly() -> None:
        while not done.wait(_UPLOAD_INTERVAL_S):
            try:
                upload()
            except BaseException as error:  # raised below, in the thread that runs the block
                failures.append(error)
                return

    thread = Thread(target=upload_regularly, name="ridgerank-save", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        upload()
    if failures:
        raise failures[0]


def _stamps(folder: Path) -> dict[Path, tuple[int, int]]:
    """Size and time of each file; scratch files, whose names start with a dot, are left out."""
    stamps = {}
    for path in folder.iterdir():
        if not path.name.startswith("."):
            status = path.stat()
            stamps[path] = (status.st_size, status.st_mtime_ns)
    return stamps
