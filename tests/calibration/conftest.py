from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ridgerank.backbones.base import Backbone
from ridgerank.calibration.hooks import CalibrationPlan
from ridgerank.indexing.index import index_documents
from tests.calibrated_store import write_reports
from tests.indexing.test_index import Seen


@dataclass
class RecordingHook:
    """A calibration hook that records its calls, and interrupts if told to."""

    plans: list[CalibrationPlan] = field(default_factory=list)
    pages_with_targets: int = 0
    queries_done: int = 0
    interrupt_after_pages: int | None = None
    interrupt_after_queries: int | None = None

    def planned(self, plan: CalibrationPlan) -> None:
        self.plans.append(plan)

    def targets_stored(self, pages: int) -> None:
        self.pages_with_targets += pages
        if self.interrupt_after_pages is not None and self.pages_with_targets >= self.interrupt_after_pages:
            raise KeyboardInterrupt

    def queries_run(self, queries: int) -> None:
        self.queries_done += queries
        if self.interrupt_after_queries is not None and self.queries_done >= self.interrupt_after_queries:
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
