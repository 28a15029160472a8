"""Writing a store: every call commits whole or not at all; files of a killed writer are removed.

A new local store is removed where an error came before its first page: the folder is free for another try.

Locally one writer holds the store (`_writer.lock`); a second is refused. On an object store there is no
lock: Lance resolves conflicting commits, and pages that two writers add at once may be stored twice.
"""

import math
import os
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import lance
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ridgerank.atomic import list_scratch_files, lock_file
from ridgerank.documents.sources import is_store_folder
from ridgerank.errors import StoreError
from ridgerank.lineage import Lineage
from ridgerank.store import lance_dataset, layout, vector_columns
from ridgerank.store.layout import Basis
from ridgerank.store.page_store import PageRow, has_page_index, ids_filter

LOCK_NAME = "_writer.lock"


def _lock(root: Path) -> tuple[int, bool]:
    """A descriptor that holds the lock of a store; whether it does: not where files cannot be locked."""
    descriptor = os.open(root / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    try:
        exclusive = lock_file(descriptor, wait=False)
    except BlockingIOError as error:
        holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
        os.close(descriptor)
        raise StoreError(
            f"another process (id {holder}) is writing to the page store at {root}; "
            "wait until it is done, or stop it"
        ) from error
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return descriptor, exclusive


READER_GRACE = timedelta(hours=1)
"""Versions younger than this are kept, for readers that opened them."""
_COMMITS_BETWEEN_SWEEPS = 256
"""Each version lists all fragments: without sweeps, versions would grow with the square of a run's length."""
_LANCE_NAMES = {"_versions", "_transactions", "_deletions", "_indices", "_refs", "data", "tree"}
_STORE_NAMES = _LANCE_NAMES | {LOCK_NAME, *layout.FOLDERS, *layout.FILES}
_PAGES_PER_RECLAIMED_FILE = 64
_RECLAIM_BATCH = 8
"""Prefixes held in memory while removed pages' space is reclaimed."""
_PAGES_PER_LOOK = 1000
_PAGES_SAMPLED = 64
_TRAINING_VECTORS = 256
"""An index cannot be trained on fewer vectors than this per cell, or in all."""

_PAGES_INDEX, _NAMES_INDEX = "page_id_idx", "references_idx"
"""The names that Lance itself would give these indices."""


class StoreWriter:
    """A store open for writing, created where there was none; a context manager."""

    def __init__(self, uri: str, lineage: Lineage, basis: Basis | None = None) -> None:
        """Open a store of this lineage or create it, beside it the basis of pages that are not int8."""
        self.uri = uri
        root = lance_dataset.local_root(uri)
        self._descriptor: int | None = None
        self._exclusive = False
        self._created = False
        self._made_root = root is not None and not root.exists()
        if root is not None:
            with lance_dataset.wrap_errors(f"making the page store at {uri}"):
                root.mkdir(parents=True, exist_ok=True)
                # Hidden files are nobody's documents: macOS puts one into every folder that is looked at.
                found = {entry.name for entry in root.iterdir() if entry.name[0] != "."}
                foreign = sorted(found - _STORE_NAMES)
                if foreign and not is_store_folder(root):
                    names = lance_dataset.shorten(foreign)
                    raise StoreError(f"{uri} holds other files ({names}); name an empty directory")
                self._descriptor, self._exclusive = _lock(root)
                for name in layout.FILES:
                    for scratch in list_scratch_files(root / name):
                        scratch.unlink(missing_ok=True)
        try:
            dataset = lance_dataset.open_dataset(uri)
            self._dataset: Any = self._create(lineage, basis) if dataset is None else dataset
            lance_dataset.read_lineage(self._dataset, uri).require(
                lineage, artifact=f"the page store at {uri}"
            )
            self._sweep()
            ids, sizes = self._columns(layout.PAGE_ID, layout.PREFIX_BYTES)
            self._page_ids: set[str] = set(ids)
            self._pending = {page_id for page_id, nbytes in zip(ids, sizes, strict=True) if not nbytes}
        except BaseException:
            self.close()
            raise

    def append(self, batch: Sequence[PageRow]) -> int:
        """Store new or pending pages in one commit and return the bytes of their prefixes."""
        ids = [row.page.page_id for row in batch]
        self._require_new(ids)
        if not batch:
            return 0
        batch = self._replace_pending(batch)
        table = build_table(batch, self._dataset.schema)
        with lance_dataset.wrap_errors(f"adding {len(batch)} pages to the page store at {self.uri}"):
            self._dataset = lance.write_dataset(table, self._dataset, mode="append")
        self._page_ids.update(ids)
        self._sweep_if_due()
        return sum(table.column(layout.PREFIX_BYTES).to_pylist())

    def page_ids(self) -> frozenset[str]:
        """The ids of all stored pages, those without a prefix included."""
        return frozenset(self._page_ids)

    def pending(self) -> frozenset[str]:
        """Pages that are stored without a prefix and wait for one."""
        return frozenset(self._pending)

    def references(self) -> dict[str, tuple[str, ...]]:
        """The names of every stored page, by page id."""
        ids, names = self._columns(layout.PAGE_ID, layout.REFERENCES)
        return {page_id: tuple(page_names) for page_id, page_names in zip(ids, names, strict=True)}

    def set_references(self, references: Mapping[str, Sequence[str]]) -> None:
        """Replace the names of pages, in one commit; their prefixes are not rewritten."""
        if not references:
            return
        ids = list(references)
        checksums: dict[str, bytes] = {}
        for start in range(0, len(ids), _PAGES_PER_LOOK):
            condition = ids_filter(ids[start : start + _PAGES_PER_LOOK])
            names = (layout.PAGE_ID, layout.SOURCE, layout.TEXT, layout.THUMBNAIL)
            for page_id, *content in zip(*self._columns(*names, filter=condition), strict=True):
                checksums[page_id] = layout.checksum(page_id, references[page_id], *content)
        self._rewrite(
            {
                layout.PAGE_ID: ids,
                layout.REFERENCES: [list(page_names) for page_names in references.values()],
                layout.CHECKSUM: [checksums[page_id] for page_id in ids],
            }
        )

    def labels(self) -> dict[str, tuple[str, ...]]:
        """The labels of every stored page that has any, by page id."""
        if layout.LABELS not in self._dataset.schema.names:
            return {}
        pairs = zip(*self._columns(layout.PAGE_ID, layout.LABELS), strict=True)
        return {page_id: tuple(labels) for page_id, labels in pairs if labels}

    def set_labels(self, labels: Mapping[str, Sequence[str]]) -> None:
        """Replace the labels of pages, in one commit; their prefixes are not rewritten."""
        if not labels:
            return
        if layout.LABELS not in self._dataset.schema.names:
            with lance_dataset.wrap_errors(f"adding metadata to the page store at {self.uri}"):
                self._dataset.add_columns([pa.field(layout.LABELS, pa.list_(pa.string()))])
        self._rewrite({layout.PAGE_ID: list(labels), layout.LABELS: list(map(list, labels.values()))})

    def remove(self, page_ids: Sequence[str]) -> None:
        """Remove pages, in one commit. Their bytes are freed by the next `reclaim`."""
        if not page_ids:
            return
        with lance_dataset.wrap_errors(f"removing {len(page_ids)} pages from the page store at {self.uri}"):
            merge = self._dataset.merge_insert(layout.PAGE_ID).when_matched_delete()
            merge.execute(pa.table({layout.PAGE_ID: pa.array(page_ids, pa.string())}))
        self._page_ids.difference_update(page_ids)
        self._pending.difference_update(page_ids)

    def reclaim(self) -> None:
        """Rewrite the files from which pages were removed; readers keep the old ones for `READER_GRACE`."""
        fragments = self._dataset.get_fragments()
        undeleted_ids = [fragment.fragment_id for fragment in fragments if not fragment.num_deletions]
        if len(undeleted_ids) == len(fragments):
            return
        with lance_dataset.wrap_errors(f"reclaiming space in the page store at {self.uri}"):
            self._dataset.optimize.compact_files(
                target_rows_per_fragment=_PAGES_PER_RECLAIMED_FILE,
                materialize_deletions_threshold=0.0,
                batch_size=_RECLAIM_BATCH,
                excluded_fragment_ids=undeleted_ids,
            )

    def open_vectors(self, origin: vector_columns.VectorOrigin) -> frozenset[str]:
        """Add a retriever's columns, return the pages without vectors; another retriever is refused."""
        stored_origin = vector_columns.read_vector_origin(self._dataset)
        if stored_origin is not None:
            stored_origin.require(origin, artifact=f"the page store at {self.uri}")
        with lance_dataset.wrap_errors(f"adding vectors to the page store at {self.uri}"):
            if stored_origin is None:
                self._dataset.update_schema_metadata({layout.RETRIEVER_KEY: origin.to_json()})
            if layout.VECTORS not in self._dataset.schema.names:
                self._dataset.add_columns(vector_columns.vector_fields(origin.dim))
            return frozenset(vector_columns.pages_without_vectors(self._dataset))

    def set_vectors(self, vectors: Mapping[str, NDArray[np.float16]]) -> None:
        """Store vectors of pages, (vectors, dim) each, in one commit; their prefixes are not rewritten."""
        if vectors:
            dim = vector_columns.vector_dim(self._dataset.schema)
            columns = vector_columns.build_vector_columns(list(vectors.values()), dim)
            self._rewrite({layout.PAGE_ID: list(vectors), **columns})

    def index_vectors(self) -> None:
        """Build an index over all vectors, for `VectorColumn.nearest`, or add later vectors to it."""
        with lance_dataset.wrap_errors(f"indexing the vectors of the page store at {self.uri}"):
            if vector_columns.has_vector_index(self._dataset):
                self._dataset.optimize.optimize_indices()
                return
            sample = self._dataset.head(_PAGES_SAMPLED, columns=[layout.VECTORS]).column(layout.VECTORS)
            vectors = (
                len(sample.combine_chunks().flatten()) * self._dataset.count_rows() / max(1, len(sample))
            )
            if vectors < _TRAINING_VECTORS:
                raise StoreError(
                    f"about {vectors:.0f} vectors in the page store at {self.uri}; an index takes at least "
                    f"{_TRAINING_VECTORS}, and so few are searched faster without"
                )
            cells = max(1, min(round(math.sqrt(vectors)), int(vectors / _TRAINING_VECTORS)))
            dim = vector_columns.vector_dim(self._dataset.schema)
            # Lance searches lists of vectors by the cosine alone; ours have unit length.
            self._dataset = self._dataset.create_index(
                layout.VECTORS,
                "IVF_PQ",
                metric="cosine",
                num_partitions=cells,
                num_sub_vectors=math.gcd(dim, max(1, dim // 4)),
            )

    def index_pages(self) -> None:
        """Build indices over page ids and names, for `IndexedCatalog`, or add later pages to them."""
        with lance_dataset.wrap_errors(f"indexing the pages of the page store at {self.uri}"):
            if has_page_index(self._dataset):
                self._dataset.optimize.optimize_indices(index_names=[_PAGES_INDEX, _NAMES_INDEX])
                return
            self._dataset.create_scalar_index(layout.PAGE_ID, "BTREE", name=_PAGES_INDEX)
            self._dataset.create_scalar_index(layout.REFERENCES, "LABEL_LIST", name=_NAMES_INDEX)

    def close(self) -> None:
        """Free the store for the next writer."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None and issubclass(kind, Exception) and self._created and not self._page_ids:
            self._discard()
        self.close()

    def _discard(self) -> None:
        """Remove what this writer made; on an object store another writer may have used it meanwhile."""
        root = lance_dataset.local_root(self.uri)
        if root is None:
            return
        for name in (*_LANCE_NAMES, *layout.FILES):
            if (root / name).is_dir():
                shutil.rmtree(root / name)
            else:
                (root / name).unlink(missing_ok=True)
        if self._made_root and [entry.name for entry in root.iterdir()] == [LOCK_NAME]:
            shutil.rmtree(root)

    def _create(self, lineage: Lineage, basis: Basis | None) -> Any:  # noqa: ANN401 (Lance is untyped)
        root = lance_dataset.local_root(self.uri)
        if root is not None and any(root.glob("data/*")):
            raise StoreError(
                f"{self.uri} holds a page store's data but no version of it: it is damaged; "
                "restore its _versions directory, or name another place"
            )
        with lance_dataset.wrap_errors(f"making the page store at {self.uri}"):
            if basis is not None:
                lance_dataset.write_file(self.uri, layout.BASIS, basis.to_bytes())
            empty = lance_dataset.schema(lineage).empty_table()
            self._created = True
            return lance.write_dataset(empty, self.uri, data_storage_version=layout.LANCE_FILE_VERSION)

    def _sweep(self) -> None:
        # Only a lock proves that a file of no version was left by a dead writer.
        with lance_dataset.wrap_errors(f"cleaning up the page store at {self.uri}"):
            self._dataset.cleanup_old_versions(READER_GRACE, delete_unverified=self._exclusive)

    def _sweep_if_due(self) -> None:
        if self._dataset.version % _COMMITS_BETWEEN_SWEEPS == 0:
            self._sweep()

    def _columns(self, *names: str, filter: str | None = None) -> list[list[Any]]:  # noqa: A002 (as Lance)
        return lance_dataset.read_columns(self._dataset, self.uri, *names, filter=filter)

    def _rewrite(self, columns: Mapping[str, Any]) -> None:
        """Replace columns of the given pages, in one commit; their prefixes are not rewritten."""
        types = self._dataset.schema
        with lance_dataset.wrap_errors(f"changing pages of the page store at {self.uri}"):
            table = pa.table(
                {name: pa.array(values, types.field(name).type) for name, values in columns.items()}
            )
            merge = self._dataset.merge_insert(layout.PAGE_ID).when_matched_update_all()
            merge.write_mode("rewrite_columns").execute(table)
        self._sweep_if_due()

    def _replace_pending(self, batch: Sequence[PageRow]) -> Sequence[PageRow]:
        """Remove the rows of pages that waited for their prefix; vectors they had go on with them."""
        pending = sorted(self._pending.intersection(row.page.page_id for row in batch))
        self._pending.update(row.page.page_id for row in batch if row.prefix is None)
        if not pending:
            return batch
        vectors: dict[str, NDArray[np.float16] | None] = {}
        if layout.VECTORS in self._dataset.schema.names:
            columns = [layout.PAGE_ID, layout.VECTORS]
            table = self._dataset.to_table(columns=columns, filter=ids_filter(pending))
            found = vector_columns.read_vectors(table)
            vectors = dict(zip(table.column(layout.PAGE_ID).to_pylist(), found, strict=True))
        self.remove(pending)
        return [
            replace(row, page=replace(row.page, vectors=vectors.get(row.page.page_id)))
            if row.page.vectors is None
            else row
            for row in batch
        ]

    def _require_new(self, page_ids: Sequence[str]) -> None:
        repeated = sorted(
            page_id
            for page_id, count in Counter(page_ids).items()
            if count > 1 or (page_id in self._page_ids and page_id not in self._pending)
        )
        if repeated:
            raise StoreError(
                f"pages stored already or given twice: {lance_dataset.shorten(repeated)}; leave them out"
            )


def build_table(rows: Sequence[PageRow], schema: pa.Schema) -> pa.Table:
    """A table of rows, with their prefixes packed and their checksums."""
    pages = [row.page for row in rows]
    empty = np.empty(0, dtype=np.uint8)
    blocks = [empty if row.prefix is None else layout.pack(row.prefix) for row in rows]
    columns: dict[str, Any] = {
        layout.PAGE_ID: [page.page_id for page in pages],
        layout.REFERENCES: [list(page.references) for page in pages],
        layout.SOURCE: [page.source for page in pages],
        layout.TEXT: [page.text for page in pages],
        layout.THUMBNAIL: [page.thumbnail for page in pages],
        layout.POSITIONS: [0 if row.prefix is None else len(row.prefix.positions) for row in rows],
        layout.CHECKSUM: [
            layout.checksum(page.page_id, page.references, page.source, page.text, page.thumbnail)
            for page in pages
        ],
        layout.PREFIX_BYTES: [len(block) for block in blocks],
        layout.PREFIX_CHECKSUM: [layout.block_checksum(block) for block in blocks],
        layout.PREFIX: [block.tobytes() or None for block in blocks],
    }
    if layout.LABELS in schema.names:
        columns[layout.LABELS] = [None] * len(pages)
    if layout.VECTORS in schema.names:
        dim = vector_columns.vector_dim(schema)
        columns |= vector_columns.build_vector_columns([page.vectors for page in pages], dim)
    elif any(page.vectors is not None for page in pages):
        raise StoreError("pages with retriever vectors, but the store has no column for them; fill it first")
    return pa.table([pa.array(columns[field.name], field.type) for field in schema], schema=schema)
