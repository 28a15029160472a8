"""One calibrated store that every adapter is compared on with `Reranker` itself."""

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image, ImageDraw

from ridgerank.backbones.base import Backbone
from ridgerank.indexing.index import index_documents
from ridgerank.reranker.reranker import Reranker
from ridgerank.store.page_store import PageStore
from ridgerank.store.sidecar import calibrations_folder
from tests.calibrated_store import ByDigest, random_calibration
from tests.conftest import write_pdf

QUERY = "revenue in 2023"


def scan(text: str) -> Image.Image:
    image = Image.new("RGB", (200, 260), "white")
    ImageDraw.Draw(image).text((20, 20), text, fill="black")
    return image


def png(image: Image.Image) -> bytes:
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


@pytest.fixture(scope="session")
def uri(small_backbone: Backbone, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Eight pages: seven of a PDF, one scan."""
    folder = tmp_path_factory.mktemp("adapted")
    write_pdf(folder / "in/report.pdf", pages=7)
    (folder / "in/scan.png").write_bytes(png(scan("a stored scan")))
    uri = str(folder / "pages")
    index_documents([folder / "in"], uri, small_backbone, preset="paper", processes=0)
    with PageStore.open(uri) as store:
        calibration = random_calibration(store.lineage, small_backbone.geometry.width)
    calibration.save(calibrations_folder(uri))
    return uri


@pytest.fixture(scope="session")
def reranker(uri: str, small_backbone: Backbone) -> Iterator[Reranker]:
    """A reranker whose retriever scores by a rule one can check."""
    with PageStore.open(uri) as store:
        retriever = ByDigest(store.page_ids())
    with Reranker.open(uri, backbone=small_backbone, retriever=retriever) as opened:
        yield opened


@pytest.fixture
def new_scan(tmp_path: Path) -> Path:
    path = tmp_path / "new.png"
    path.write_bytes(png(scan("a page in no store")))
    return path
