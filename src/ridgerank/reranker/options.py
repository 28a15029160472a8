"""How a store and its calibration are opened, before any model: a wrong path costs no import of torch."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ridgerank.calibration.artifact import DEFAULT_NAME, Calibration
from ridgerank.store.page_store import CACHE_BYTES, PageStore
from ridgerank.store.sidecar import open_calibrations

if TYPE_CHECKING:
    from ridgerank.reranker.reranker import Reranker


@dataclass(frozen=True, slots=True)
class RerankerOptions:
    """What `Reranker.open` is told, whatever the store: plain values, so that another process can be told."""

    readout: str = DEFAULT_NAME
    retriever: str | None = None
    backbone: str | None = None
    device: str | None = None
    dtype: str | None = None
    cache_bytes: int = CACHE_BYTES

    def open(self, store: "str | CalibratedStore") -> "Reranker":
        """Open a calibrated store, then import torch and load the model."""
        parts = open_calibrated(store, self.readout) if isinstance(store, str) else store
        from ridgerank.reranker.reranker import Reranker

        return Reranker.open(parts, **asdict(self))


class CalibratedStore(NamedTuple):
    """Pages, and how they are scored."""

    pages: PageStore
    calibration: Calibration


def open_calibrated(store: str | Path, readout: str = DEFAULT_NAME) -> CalibratedStore:
    """Open the store and read its calibration of this name."""
    opened = PageStore.open(str(store))
    with open_calibrations(opened.uri) as folder:
        return CalibratedStore(opened, Calibration.load(folder, readout, lineage=opened.lineage))
