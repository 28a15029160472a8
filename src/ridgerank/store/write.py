"""Writing a store: every call commits whole or not at all, and a killed writer is cleaned up after.

Locally one writer holds the store (`lock.py`); a second is refused. On an object store there is no
lock: Lance settles conflicting commits, and pages that two writers add at once may be stored twice.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

import lance
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ridgerank.errors import LineageMismatch, StoreError
from ridgerank.lineage import Lineage
from ridgerank.store import dataset, layout, rows
from ridgerank.store.lock import LOCK_NAME, WriterLock
from ridgerank.store.rows import PageRow

READER_GRACE = timedelta(hours=1)
"""Versions younger than this are left for those who read them."""
_COMMITS_BETWEEN_SWEEPS = 256
"""Each version lists all fragments: unswept, a long run's versions would grow with its square."""
_OURS = {LOCK_NAME, "_versions", "_transactions", "_deletions", "_indices", "_refs", "data", "tree"}
"""What may lie in the directory of a store."""
_PAGES_PER_RECLAIMED_FILE = 64
_RECLAIM_BATCH = 8
"""Prefixes held in memory while removed pages' space is reclaimed."""

VectorsOf = Callable[[Sequence[str]], Sequence[NDArray[np.float16] | None]]
"""The retriever's vectors of pages, each (vectors, dim), None where it has none."""


class StoreWriter:
    """A store open for writing, created where there was none; a context manager."""

    def __init__(self, uri: str, lineage: Lineage) -> None:
        self.uri = uri
        root = dataset.local_root(uri)
        self._lock: WriterLock | None = None
        if root is not None:
            with dataset.telling(f"making the page store at {uri}"):
                root.mkdir(parents=True, exist_ok=True)
                foreign = sorted({entry.name for entry in root.iterdir()} - _OURS)
                if foreign:
                    names = dataset.named(foreign)
                    raise StoreError(f"{uri} holds other files ({names}); name an empty directory")
                self._lock = WriterLock(root)
        try:
            found = dataset.find(uri)
            self._dataset: Any = self._create(lineage) if found is None else found
            dataset.lineage_of(self._dataset, uri).require(lineage, artifact=f"the page store at {uri}")
            self._sweep()
            self._stored: set[str] = set(self._columns(layout.PAGE_ID)[0])
        except BaseException:
            self.close()
            raise

    def append(self, batch: Sequence[PageRow]) -> None:
        """Store a batch of pages in one commit; none may be stored already."""
        ids = [row.page.page_id for row in batch]
        repeated = sorted({page_id for page_id in ids if page_id in self._stored or ids.count(page_id) > 1})
        if repeated:
            raise StoreError(
                f"pages stored already or given twice: {dataset.named(repeated)}; leave them out"
            )
        if not batch:
            return
        table = rows.to_table(batch, self._dataset.schema)
        with dataset.telling(f"adding {len(batch)} pages to the page store at {self.uri}"):
            self._dataset = lance.write_dataset(table, self._dataset, mode="append")
        self._stored.update(ids)
        self._sweep_at_times()

    def page_ids(self) -> frozenset[str]:
        """List what is stored."""
        return frozenset(self._stored)

    def references(self) -> dict[str, tuple[str, ...]]:
        """List the names of every page stored, by page id."""
        ids, names = self._columns(layout.PAGE_ID, layout.REFERENCES)
        return {page_id: tuple(found) for page_id, found in zip(ids, names, strict=True)}

    def set_references(self, references: Mapping[str, Sequence[str]]) -> None:
        """Replace the names of pages, in one commit; their prefixes are not rewritten."""
        self._require(references)
        if references:
            names = [list(found) for found in references.values()]
            self._rewrite({layout.PAGE_ID: list(references), layout.REFERENCES: names})

    def remove(self, page_ids: Sequence[str]) -> None:
        """Take pages out, in one commit. Their bytes go with the next `reclaim`."""
        self._require(page_ids)
        if not page_ids:
            return
        listed = ", ".join("'" + page_id.replace("'", "''") + "'" for page_id in page_ids)
        with dataset.telling(f"removing {len(page_ids)} pages from the page store at {self.uri}"):
            self._dataset.delete(f"{layout.PAGE_ID} IN ({listed})")
        self._stored.difference_update(page_ids)

    def reclaim(self) -> None:
        """Rewrite the files from which pages were removed, and no others.

        Readers keep what they opened for `READER_GRACE`; the old files go with a later sweep.
        """
        whole = [
            fragment.fragment_id for fragment in self._dataset.get_fragments() if not fragment.num_deletions
        ]
        with dataset.telling(f"reclaiming space in the page store at {self.uri}"):
            self._dataset.optimize.compact_files(
                target_rows_per_fragment=_PAGES_PER_RECLAIMED_FILE,
                materialize_deletions_threshold=0.0,
                batch_size=_RECLAIM_BATCH,
                excluded_fragment_ids=whole,
            )

    def fill_vectors(self, retriever: str, dim: int, vectors_of: VectorsOf) -> None:
        """Ask `vectors_of` for the vectors of every page that has none, and store them.

        One file's pages are asked for and committed at a time, so a killed run goes on where it stopped.
        """
        self._require_vectors(retriever, dim)
        for page_ids in self._without_vectors():
            self._rewrite({layout.PAGE_ID: page_ids, **rows.vector_columns(vectors_of(page_ids), dim)})

    def close(self) -> None:
        """Let the next writer in."""
        if self._lock is not None:
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _create(self, lineage: Lineage) -> Any:  # noqa: ANN401 (Lance is untyped)
        root = dataset.local_root(self.uri)
        if root is not None and any(root.glob("data/*")):
            raise StoreError(
                f"{self.uri} holds a page store's data but no version of it: it is damaged; "
                "restore its _versions directory, or name another place"
            )
        with dataset.telling(f"making the page store at {self.uri}"):
            empty = dataset.schema(lineage).empty_table()
            return lance.write_dataset(empty, self.uri, data_storage_version=layout.LANCE_FILE_VERSION)

    def _sweep(self) -> None:
        # Only a lock proves that a file of no version is a dead writer's and not a live one's.
        with dataset.telling(f"cleaning up the page store at {self.uri}"):
            self._dataset.cleanup_old_versions(READER_GRACE, delete_unverified=self._lock is not None)

    def _sweep_at_times(self) -> None:
        if self._dataset.version % _COMMITS_BETWEEN_SWEEPS == 0:
            self._sweep()

    def _columns(self, *names: str) -> list[list[Any]]:
        with dataset.telling(f"reading the page store at {self.uri}"):
            table = self._dataset.to_table(columns=list(names))
            return [table.column(name).to_pylist() for name in names]

    def _rewrite(self, columns: Mapping[str, Any]) -> None:
        """Replace some columns of the pages named, in one commit, leaving their prefixes where they lie."""
        types = self._dataset.schema
        with dataset.telling(f"changing pages of the page store at {self.uri}"):
            table = pa.table(
                {name: pa.array(found, types.field(name).type) for name, found in columns.items()}
            )
            merge = self._dataset.merge_insert(layout.PAGE_ID).when_matched_update_all()
            merge.write_mode("rewrite_columns").execute(table)
        self._sweep_at_times()

    def _require(self, page_ids: Iterable[str]) -> None:
        missing = [page_id for page_id in page_ids if page_id not in self._stored]
        if missing:
            raise StoreError(f"pages not in the page store at {self.uri}: {dataset.named(missing)}")

    def _require_vectors(self, retriever: str, dim: int) -> None:
        schema = self._dataset.schema
        found = (schema.metadata or {}).get(layout.RETRIEVER_KEY.encode(), retriever.encode()).decode()
        if found != retriever:
            raise LineageMismatch(
                f"the page store at {self.uri} holds vectors of {found!r}, not of {retriever!r}; "
                "use that retriever, or index into another store"
            )
        with dataset.telling(f"adding vectors to the page store at {self.uri}"):
            self._dataset.update_schema_metadata({layout.RETRIEVER_KEY: retriever})
            if layout.VECTORS not in schema.names:
                self._dataset.add_columns(rows.vector_fields(dim))
        if rows.vector_dim(self._dataset.schema) != dim:
            held = rows.vector_dim(self._dataset.schema)
            raise LineageMismatch(
                f"the page store at {self.uri} holds vectors of {held} dimensions, not of {dim}"
            )

    def _without_vectors(self) -> Iterator[list[str]]:
        for fragment in self._dataset.get_fragments():
            table = fragment.to_table(columns=[layout.PAGE_ID], filter=f"{layout.VECTORS} IS NULL")
            if table.num_rows:
                yield table.column(layout.PAGE_ID).to_pylist()
