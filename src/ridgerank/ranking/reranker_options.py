"""How a command or a server opens a store: plain words and numbers, so that another process can be told."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ridgerank.byte_lru import CACHE_BYTES
from ridgerank.calibration.artifact import DEFAULT_NAME
from ridgerank.ranking.calibrated_store import open_calibrated
from ridgerank.store.disk_cache import DiskCache

if TYPE_CHECKING:
    from ridgerank.backbones.base import Backbone
    from ridgerank.ranking.reranker import Reranker


@dataclass(frozen=True, slots=True)
class RerankerOptions:
    """What `Reranker.open` is told, whatever the store."""

    readout: str = DEFAULT_NAME
    retriever: str | None = None
    backbone: str | None = None
    device: str | None = None
    dtype: str | None = None
    cache_bytes: int = CACHE_BYTES
    """Pages in memory."""
    cache_dir: Path | None = None
    cache_disk_bytes: int = 0

    def open(self, store: str, *, backbone: "Backbone | None" = None) -> "Reranker":
        """Open a calibrated store, with a model that is there already or with one of its own.

        Torch is imported after store and calibration are there.
        """
        disk = None
        if self.cache_dir is not None:
            disk = DiskCache(self.cache_dir, capacity_bytes=self.cache_disk_bytes)
        parts = open_calibrated(store, self.readout, disk=disk)
        from ridgerank.backbones.load import parse_dtype
        from ridgerank.ranking.reranker import Reranker

        return Reranker.load(
            parts,
            backbone=backbone or self.backbone,
            retriever=self.retriever,
            cache_bytes=self.cache_bytes,
            device=self.device,
            dtype=parse_dtype(self.dtype),
        )
