"""An S3 server on loopback, and the reports that are indexed into it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.loopback_s3 import LoopbackS3, loopback_s3
from tests.calibrated import write_reports


@pytest.fixture(scope="session")
def s3() -> Iterator[LoopbackS3]:
    """The server; this process's environment leads there as long as it runs."""
    pytest.importorskip("moto", reason="moto is not installed: `pip install 'ridgerank[object-store-tests]'`")
    pytest.importorskip("flask", reason="moto's server needs flask")
    with loopback_s3() as running:
        yield running


@pytest.fixture(scope="session")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty pages with text."""
    return write_reports(tmp_path_factory.mktemp("reports"), pages=40)
