from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ridgerank.backbones.base import Backbone
from ridgerank.indexing.index import index_documents
from tests.calibrated_store import write_reports


@dataclass
class RecordingProgress:
    """A `progress` callback that records its calls, and interrupts if told to."""

    done: dict[str, int] = field(default_factory=dict)
    total: dict[str, int] = field(default_factory=dict)
    interrupt: dict[str, int] = field(default_factory=dict)
    """Step → how much of it may be done."""

    def __call__(self, step: str, done: int, total: int) -> None:
        self.done[step], self.total[step] = done, total
        if done >= self.interrupt.get(step, total + 1):
            raise KeyboardInterrupt


@pytest.fixture(scope="session")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_reports(tmp_path_factory.mktemp("reports"), pages=40)


@pytest.fixture
def store(reports: Path, small_backbone: Backbone, tmp_path: Path) -> str:
    """The reports, indexed and not calibrated."""
    uri = str(tmp_path / "store")
    index_documents([reports], uri, small_backbone, preset="paper", processes=0)
    return uri
