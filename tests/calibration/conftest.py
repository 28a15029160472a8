from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ridgerank.backbones.base import Backbone
from ridgerank.calibration.calibrate import CalibrationPlan
from ridgerank.indexing.index import index_documents
from tests.calibrated_store import write_reports
from tests.indexing.test_index import Seen


@dataclass
class Looking:
    """A watcher that remembers, and interrupts if told to."""

    plans: list[CalibrationPlan] = field(default_factory=list)
    taught_pages: int = 0
    asked_queries: int = 0
    interrupt_after_pages: int | None = None
    interrupt_after_queries: int | None = None

    def calibrating(self, plan: CalibrationPlan) -> None:
        self.plans.append(plan)

    def taught(self, pages: int) -> None:
        self.taught_pages += pages
        if self.interrupt_after_pages is not None and self.taught_pages >= self.interrupt_after_pages:
            raise KeyboardInterrupt

    def asked(self, queries: int) -> None:
        self.asked_queries += queries
        if self.interrupt_after_queries is not None and self.asked_queries >= self.interrupt_after_queries:
            raise KeyboardInterrupt


@pytest.fixture(scope="session")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_reports(tmp_path_factory.mktemp("reports"), pages=40)


@pytest.fixture
def store(reports: Path, small_backbone: Backbone, tmp_path: Path) -> str:
    """The reports, indexed and not calibrated."""
    uri = str(tmp_path / "store")
    index_documents([reports], uri, small_backbone, hook=Seen(), processes=1)
    return uri
