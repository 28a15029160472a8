"""An S3 server on loopback, a Ray cluster of this machine, and the reports that are indexed there."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.calibrated_store import write_reports
from tests.loopback_s3 import Traffic, loopback_s3
from tests.scaleout.local_ray import two_workers


@pytest.fixture(scope="session")
def s3() -> Iterator[Traffic]:
    """The server; this process's environment leads there as long as it runs."""
    pytest.importorskip("moto", reason="moto is not installed: `pip install 'ridgerank[object-store-tests]'`")
    pytest.importorskip("flask", reason="moto's server needs flask")
    with loopback_s3() as running:
        yield running


@pytest.fixture(scope="session")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty pages with text."""
    return write_reports(tmp_path_factory.mktemp("reports"), pages=40)


@pytest.fixture(scope="session")
def ray_module() -> Iterator[Any]:
    """Ray, connected to a cluster of two workers."""
    pytest.importorskip("ray", reason="Ray is not installed: `pip install 'ridgerank[ray]'`")
    with tempfile.TemporaryDirectory(prefix="ray") as folder, two_workers(Path(folder)) as module:
        yield module
