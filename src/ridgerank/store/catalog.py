"""Where everything is: page id or reference to row, row to the bytes of its prefix.

Only narrow columns are read, on first use, so that a store of a hundred thousand pages opens at once.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from ridgerank.errors import StoreError
from ridgerank.store import dataset, layout


class Place(NamedTuple):
    """Where one page's prefix lies."""

    address: int
    """Lance's address of the row, the fragment in its upper half."""
    offset: int
    """First byte in the fragment's data file."""
    nbytes: int


class Catalog:
    """The rows of one version of a store; a row is counted from 0."""

    def __init__(self, opened: Any, uri: str) -> None:  # noqa: ANN401 (Lance is untyped)
        self._dataset = opened
        self._uri = uri

    def rows(self, page_ids: Sequence[str]) -> list[int]:
        """Look up the row of each page; those missing are named in the error."""
        missing = [page_id for page_id in page_ids if page_id not in self.row_of]
        if missing:
            names = dataset.named(missing)
            raise StoreError(f"pages not in the page store at {self._uri}: {names}; index them first")
        return [self.row_of[page_id] for page_id in page_ids]

    @cached_property
    def row_of(self) -> dict[str, int]:
        """Row by page id."""
        page_ids: list[str] = self._table.column(layout.PAGE_ID).to_pylist()
        return {page_id: row for row, page_id in enumerate(page_ids)}

    @cached_property
    def page_of_reference(self) -> dict[str, str]:
        """Page id by every name it has."""
        return {name: page_id for page_id, names in self.references_of.items() for name in names}

    @cached_property
    def references_of(self) -> dict[str, list[str]]:
        """Every name of a page, by page id."""
        with dataset.telling(f"reading the page store at {self._uri}"):
            table = self._dataset.to_table(columns=[layout.PAGE_ID, layout.REFERENCES])
        ids, references = (table.column(name).to_pylist() for name in (layout.PAGE_ID, layout.REFERENCES))
        return dict(zip(ids, references, strict=True))

    def places(self, page_ids: Sequence[str]) -> list[Place]:
        """Tell where the prefix of each page lies."""
        return [Place(*self._places[row].tolist()) for row in self.rows(page_ids)]

    def positions(self, page_ids: Sequence[str]) -> list[int]:
        """Count the stored positions of each page."""
        counted: list[int] = self._positions[self.rows(page_ids)].tolist()
        return counted

    @property
    def prefix_nbytes(self) -> int:
        """Bytes of all prefixes together."""
        return int(self._places[:, 2].sum())

    @cached_property
    def _positions(self) -> NDArray[np.int32]:
        with dataset.telling(f"reading the page store at {self._uri}"):
            table = self._dataset.to_table(columns=[layout.POSITIONS])
        return np.asarray(table.column(layout.POSITIONS), dtype=np.int32)

    @cached_property
    def _places(self) -> NDArray[np.uint64]:
        return places_of(self._table)

    @cached_property
    def _table(self) -> Any:  # noqa: ANN401
        with dataset.telling(f"reading the page store at {self._uri}"):
            return self._dataset.to_table(columns=[layout.PAGE_ID, layout.PREFIX], **DESCRIBED)


DESCRIBED: dict[str, Any] = {"blob_handling": "blobs_descriptions", "with_row_address": True}
"""How to scan so that prefixes come as positions and sizes, not as bytes."""


def places_of(table: Any) -> NDArray[np.uint64]:  # noqa: ANN401
    """(rows, 3): the `Place` of each row of a scan that was `DESCRIBED`."""
    described = table.column(layout.PREFIX)
    parts = [pc.struct_field(described, name) for name in ("position", "size")]
    return np.stack(
        [np.asarray(part, dtype=np.uint64) for part in (table.column("_rowaddr"), *parts)], axis=1
    )
