"""One vector per page, kept beside the store so that it is computed once; knows no model.

Each embedder has one file, under the store's directory or URL.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from ridgerank.atomic import replace_file
from ridgerank.errors import ArtifactError
from ridgerank.store import layout
from ridgerank.store.lance_dataset import local_root
from ridgerank.store.remote_folder import RemoteFolder


class Embeddings:
    """The embeddings of a store's pages by one embedder."""

    def __init__(self, uri: str, fingerprint: str) -> None:
        """Read the embeddings kept under this fingerprint, if there are any."""
        self._name = f"{fingerprint}.safetensors"
        self._root = local_root(uri)
        self._remote = RemoteFolder(uri, layout.EMBEDDINGS) if self._root is None else None
        self._row_of: dict[str, int] = {}
        self._vectors = np.zeros((0, 0), dtype=np.float32)
        with self._folder() as folder:
            if self._remote is not None:
                self._remote.get(self._name, folder)
            if (folder / self._name).exists():
                self._read(folder / self._name)

    def __contains__(self, page_id: object) -> bool:
        return page_id in self._row_of

    def rows(self, page_ids: Sequence[str]) -> NDArray[np.float32]:
        """Embeddings (pages, dim) of pages that are in here."""
        return self._vectors[[self._row_of[page_id] for page_id in page_ids]]

    def add(self, page_ids: Sequence[str], vectors: NDArray[np.float32]) -> None:
        """Add the embeddings (pages, dim) of further pages, and write the file."""
        self._row_of |= {page_id: len(self._row_of) + position for position, page_id in enumerate(page_ids)}
        self._vectors = np.concatenate([self._vectors, vectors]) if self._vectors.size else vectors
        with self._folder() as folder:
            with replace_file(folder / self._name) as scratch:
                ids = json.dumps(list(self._row_of))
                save_file({"embeddings": self._vectors}, scratch, metadata={"page_ids": ids})
            if self._remote is not None:
                self._remote.put(folder / self._name)

    @contextmanager
    def _folder(self) -> Iterator[Path]:
        """The folder beside a local store; for a remote store, a temporary folder for copies."""
        if self._root is not None:
            yield self._root / layout.EMBEDDINGS
            return
        with TemporaryDirectory(prefix="ridgerank-") as scratch:
            yield Path(scratch)

    def _read(self, path: Path) -> None:
        try:
            with safe_open(path, framework="numpy") as file:
                page_ids = json.loads((file.metadata() or {})["page_ids"])
                vectors: NDArray[np.float32] = file.get_tensor("embeddings")
        except (SafetensorError, KeyError, ValueError, OSError) as error:
            raise ArtifactError(f"{path} cannot be read as embeddings ({error}); remove it") from error
        if len(page_ids) != len(vectors):
            raise ArtifactError(
                f"{path} names {len(page_ids)} pages and holds {len(vectors)} embeddings; remove it"
            )
        self._row_of = {page_id: row for row, page_id in enumerate(page_ids)}
        self._vectors = vectors
