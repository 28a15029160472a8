"""Small files beside a store on an object store, through the client that Lance itself uses.

Its credentials come from where Lance takes them, the environment: none pass through here.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

from lance.file import LanceFileSession

from ridgerank.store import lance_dataset

_SECONDS_BETWEEN_SAVINGS = 10.0
"""What was written to a copy since is what a kill can cost."""


class RemoteFolder:
    """The objects right under a URL, by name."""

    def __init__(self, uri: str, name: str = "") -> None:
        self.url = "/".join(part for part in (uri.rstrip("/"), name) if part)
        with lance_dataset.telling(f"opening {self.url}"):
            self._session = LanceFileSession(self.url)

    def names(self) -> list[str]:
        """What is there, sorted; nothing where there is no such folder."""
        with lance_dataset.telling(f"listing {self.url}"):
            return sorted(name for name in self._session.list() if "/" not in name)

    def get(self, name: str, folder: Path) -> bool:
        """Copy one object into a local folder; whether it was there."""
        with lance_dataset.telling(f"reading {self.url}/{name}"):
            if not self._session.contains(name):
                return False
            self._session.download_file(name, str(folder / name))
            return True

    def put(self, path: Path) -> None:
        """Copy a local file there, in place of the one of its name: whole, or not at all."""
        with lance_dataset.telling(f"writing {self.url}/{path.name}"):
            self._session.upload_file(str(path), path.name)

    def fetch(self, folder: Path, *, suffix: str = "") -> None:
        """Copy everything whose name ends in `suffix` into a local folder."""
        for name in self.names():
            if name.endswith(suffix):
                self.get(name, folder)


@contextmanager
def kept(remote: RemoteFolder, folder: Path) -> Iterator[None]:
    """Bring what changes in a local copy back: every few seconds, and at the end, also after an error."""
    known = _stamps(folder)
    done = Event()
    failures: list[BaseException] = []

    def bring_back() -> None:
        now = _stamps(folder)
        for path in sorted(path for path, stamp in now.items() if known.get(path) != stamp):
            remote.put(path)
            known[path] = now[path]

    def work() -> None:
        while not done.wait(_SECONDS_BETWEEN_SAVINGS):
            try:
                bring_back()
            except BaseException as error:  # told below, in the thread of whoever waits
                failures.append(error)
                return

    saving = Thread(target=work, name="ridgerank-save", daemon=True)
    saving.start()
    try:
        yield
    finally:
        done.set()
        saving.join()
        bring_back()
    if failures:
        raise failures[0]


def _stamps(folder: Path) -> dict[Path, tuple[int, int]]:
    """Size and time of each file; scratch files, which open with a dot, are not looked at."""
    found = {}
    for path in folder.iterdir():
        if not path.name.startswith("."):
            status = path.stat()
            found[path] = (status.st_size, status.st_mtime_ns)
    return found
