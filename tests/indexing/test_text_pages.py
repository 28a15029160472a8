"""Pages as text, from documents through the store to states."""

from pathlib import Path

import pytest
import torch
from PIL import Image

from ridgerank.backbones.base import Backbone
from ridgerank.backbones.decoder import PrefixBatch
from ridgerank.backbones.load import load_backbone
from ridgerank.backbones.model_settings import ModelSettings
from ridgerank.documents.ocr import Recognizer
from ridgerank.documents.pdf import PdfReader
from ridgerank.errors import LineageMismatch
from ridgerank.indexing.index import index_documents
from ridgerank.lineage import Keep
from ridgerank.processes import IsolatedProcess
from ridgerank.records import STATES, Page, State
from ridgerank.reranker.explain import explain
from ridgerank.scoring.shallow import ShallowPass
from ridgerank.store.page_store import PageStore
from ridgerank.store.sidecar import rerender_pages
from tests.backbones.small_text_models import build_text
from tests.calibrated_store import write_reports
from tests.conftest import write_pdf
from tests.documents import pool_tasks

QUERY = "What was the revenue?"


class Told(Recognizer):
    """Reads every image as the same words."""

    def __init__(self) -> None: ...

    def read(self, page: Page) -> str:
        return "words that only the image of this page shows"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_text("qwen2", tmp_path_factory.mktemp("qwen2")).folder


@pytest.fixture(scope="module")
def backbone(folder: Path) -> Backbone:
    return load_backbone(folder, device="cpu")


@pytest.fixture(scope="module")
def store(backbone: Backbone, tmp_path_factory: pytest.TempPathFactory) -> str:
    root = tmp_path_factory.mktemp("documents")
    write_pdf(root / "in/a.pdf", pages=2)
    Image.new("RGB", (60, 80), "white").save(root / "in/scan.png")
    index_documents(
        [root / "in"],
        str(root / "store"),
        backbone,
        keep=Keep.parse("value-norm 1"),
        preset="paper",
        processes=0,
        recognizer=Told(),
    )
    return str(root / "store")


@pytest.mark.parametrize("state", STATES)
def test_states_over_stored_text_are_close_to_those_over_the_text(
    backbone: Backbone, store: str, state: State
) -> None:
    for cache_bytes in (0, 1 << 20):
        shallow = ShallowPass(backbone, PageStore.open(store), cache_bytes=cache_bytes)
        ids = shallow.store.page_ids()
        texts = [page.text for page in shallow.store.pages(ids)]
        found = shallow.run(QUERY, ids, state=state).states
        exit_layer = shallow.store.lineage.storage.exit_layer
        prefixes = PrefixBatch(backbone.encode(texts, exit_layer=exit_layer))
        exact = backbone.states([QUERY], prefixes, state=state)
        assert torch.nn.functional.cosine_similarity(found, exact).min() > 0.99


def test_a_page_is_read_again_with_its_text_elsewhere(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PdfReader, "read", lambda *_: pytest.fail("a crash would end the command"))
    with PageStore.open(store) as opened:
        batches = rerender_pages(opened, opened.page_ids(), max_pixels=10_000)
        assert {page.page_id: page.text for batch in batches for page in batch} == opened.texts()


def test_a_store_says_what_to_load_its_model_with(folder: Path, tmp_path: Path) -> None:
    write_pdf(tmp_path / "a.pdf", pages=1)
    model = load_backbone(folder, device="cpu", page_text="head 40", prompt="plain")
    index_documents([tmp_path / "a.pdf"], str(tmp_path / "store"), model, processes=0)
    with PageStore.open(str(tmp_path / "store")) as opened:
        settings = ModelSettings.from_lineage(opened.lineage, device="cpu")
        assert settings == ModelSettings(str(folder), "cpu", page_text="head 40", prompt="plain")
        ShallowPass(settings.load(), opened)
        with pytest.raises(LineageMismatch, match="plain' there"):
            ShallowPass(load_backbone(folder, device="cpu", page_text="head 40"), opened)


def test_an_explanation_names_the_lines_the_query_looked_at(
    backbone: Backbone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports, uri = write_reports(tmp_path / "reports", pages=2), str(tmp_path / "store")
    index_documents([reports], uri, backbone, keep=Keep.parse("value-norm 1"), processes=0)
    shallow = ShallowPass(backbone, PageStore.open(uri))
    [page] = shallow.store.pages(shallow.store.page_ids()[:1])
    reader = IsolatedProcess()
    looked = explain(shallow, QUERY, page.page_id, reader)
    (reports / "report-0.pdf").rename(reports / "gone")
    without_document = explain(shallow, QUERY, page.page_id, reader)
    monkeypatch.setattr("ridgerank.reranker.explain.find_words", pool_tasks.end_the_process)
    assert explain(shallow, QUERY, page.page_id, reader).passages == without_document.passages
    reader.close()
    lines = [" ".join(line.split()) for line in page.text.splitlines() if line.strip()]
    assert [" ".join(passage.text.split()) for passage in looked.passages] == lines
    assert sum(passage.weight for passage in looked.passages) == pytest.approx(looked.page_share)
    regions = [passage.region for passage in looked.passages]
    assert all(region is not None and 0 <= region[1] < region[3] <= 1 for region in regions)
    assert len(looked.regions) == len(looked.weights) == len(looked.kept)
    # Without its document a page has lines still, and no places.
    assert [passage.weight for passage in without_document.passages] == [
        passage.weight for passage in looked.passages
    ]
    assert set(without_document.regions) == {None}
    assert {passage.region for passage in without_document.passages} == {None}


def test_pages_that_are_blank_to_a_text_model_are_named_and_read_ones_are_not(
    backbone: Backbone, tmp_path: Path
) -> None:
    write_pdf(tmp_path / "in/scan.pdf", pages=2)
    write_reports(tmp_path / "in", pages=3)
    for number in ("first", "second"):  # the second run finds all pages stored, and still says so
        told = index_documents([tmp_path / "in"], str(tmp_path / "bare"), backbone, processes=0)
        assert told.without_text == ("scan.pdf#1", "scan.pdf#2"), number
    read = index_documents(
        [tmp_path / "in"], str(tmp_path / "read"), backbone, processes=0, recognizer=Told()
    )
    assert read.without_text == ()
