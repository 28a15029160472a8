"""Rows of a published data set, from the hub at a pinned revision or from a folder in the hub's layout.

A data set is a set of tables, each in a folder of its name: `queries/test-00000-of-00001.parquet`. Data sets
with one table per language call them `english-queries`. Rows stream; no table is ever held.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ridgerank.errors import DatasetError, ExtraMissing

SPLIT = "test"
_ROWS_AT_ONCE = 16
"""Rows of a local table in memory; a page image is some megabytes."""


@dataclass(frozen=True, slots=True)
class HubDataset:
    """Where a data set is, and which state of it."""

    repository: str
    revision: str
    """Commit of the data set on the hub: what it held then is what is measured."""

    @property
    def name(self) -> str:
        """The last part of the repository, which is also its folder in a local copy."""
        return self.repository.rpartition("/")[2]


class DatasetTables:
    """The tables of one data set."""

    def __init__(self, hub_dataset: HubDataset, local: Path | None) -> None:
        """Read from the hub, or from the folder of this data set's name under `local`."""
        self.hub_dataset = hub_dataset
        self._folder = None if local is None else local / hub_dataset.name
        if self._folder is not None and not self._folder.is_dir():
            raise DatasetError(
                f"{self._folder}: no such folder; wanted a copy of {hub_dataset.repository} in the hub's "
                "layout (corpus/, queries/ and qrels/ with parquet files)"
            )

    def names(self) -> list[str]:
        """List the tables there are."""
        if self._folder is not None:
            return sorted({path.parent.name for path in self._folder.glob("*/*.parquet")})
        datasets = _datasets()
        with _explain_errors(self.hub_dataset):
            names: list[str] = datasets.get_dataset_config_names(
                self.hub_dataset.repository, revision=self.hub_dataset.revision
            )
        return sorted(names)

    def rows(self, table: str) -> Iterator[Mapping[str, Any]]:
        """Read a table row by row; an image comes as the bytes of its file."""
        with _explain_errors(self.hub_dataset):
            yield from self._local(self._folder / table) if self._folder is not None else self._online(table)

    def _local(self, folder: Path) -> Iterator[Mapping[str, Any]]:
        from pyarrow.parquet import ParquetFile

        files = sorted(folder.glob(f"{SPLIT}*.parquet"))
        if not files:
            raise DatasetError(f"{folder}: no {SPLIT}*.parquet; wanted the table's files")
        for path in files:
            with ParquetFile(path) as file:
                for batch in file.iter_batches(batch_size=_ROWS_AT_ONCE):
                    yield from batch.to_pylist()

    def _online(self, table: str) -> Iterator[Mapping[str, Any]]:
        datasets = _datasets()
        # The download is kept by the library, so that an interrupted run goes on; rows stay on disk.
        table_rows = datasets.load_dataset(
            self.hub_dataset.repository, table, split=SPLIT, revision=self.hub_dataset.revision
        )
        if "image" in table_rows.features:
            table_rows = table_rows.cast_column("image", datasets.Image(decode=False))
        yield from table_rows


@contextmanager
def _explain_errors(hub_dataset: HubDataset) -> Iterator[None]:
    """Turn an error of the library into one that says which data set, and what to do."""
    try:
        yield
    except (OSError, ValueError) as error:
        first_line = str(error).strip().partition("\n")[0]
        raise DatasetError(
            f"cannot read {hub_dataset.repository} at {hub_dataset.revision}: {first_line}. Check the "
            "connection, or download it once and say where it is"
        ) from error


def _datasets() -> Any:  # noqa: ANN401 (untyped)
    try:
        import datasets
    except ModuleNotFoundError as error:
        raise ExtraMissing("ViDoRe needs the package datasets: `pip install 'ridgerank[vidore]'`") from error
    return datasets
