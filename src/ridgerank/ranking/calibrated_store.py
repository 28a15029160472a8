"""A store and one of its calibrations, opened before any model: a wrong path costs no import of torch."""

from pathlib import Path
from typing import NamedTuple

from ridgerank.calibration.artifact import DEFAULT_NAME, Calibration
from ridgerank.store.disk_cache import DiskCache
from ridgerank.store.page_store import PageStore
from ridgerank.store.sidecar import open_calibrations


class CalibratedStore(NamedTuple):
    """Pages, and how they are scored."""

    pages: PageStore
    calibration: Calibration


def open_calibrated(
    store: str | Path, readout: str = DEFAULT_NAME, *, disk: DiskCache | None = None
) -> CalibratedStore:
    """Open the store and read its calibration of this name; whoever gets them closes the store."""
    uri = str(store)
    opened = PageStore.open(uri, disk=disk)
    try:
        with open_calibrations(uri) as folder:
            return CalibratedStore(opened, Calibration.load(folder, readout, lineage=opened.lineage))
    except BaseException:
        opened.close()
        raise
