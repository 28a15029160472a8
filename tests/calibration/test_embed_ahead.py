"""Late interaction in one pass: embedded first, then encoded, nothing done twice."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL.Image import Image

from ridgerank.backbones.base import Backbone
from ridgerank.calibration.artifact import Calibration
from ridgerank.calibration.calibrate import calibrate
from ridgerank.calibration.embed_ahead import AheadEmbedder
from ridgerank.calibration.index_hook import TargetHook
from ridgerank.indexing.index import index_documents
from ridgerank.retrievers.encoders.base import MultiVectorEncoder
from ridgerank.retrievers.encoders.load import load_encoder
from ridgerank.retrievers.late_interaction import LateInteraction
from ridgerank.store.page_store import PageStore
from tests.calibrated_store import write_report
from tests.calibration.conftest import RecordingHook
from tests.indexing.test_index import Seen, contents
from tests.retrievers.small_encoders import build

SIZES: Any = {"query_count": 16, "candidates": 6}


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> MultiVectorEncoder:
    return load_encoder(build("colqwen2 on 2.5", tmp_path_factory.mktemp("encoder")).folder, device="cpu")


def index(folder: Path, uri: str, backbone: Backbone, embedder: AheadEmbedder | MultiVectorEncoder) -> None:
    target_hook = None
    if isinstance(embedder, AheadEmbedder):
        target_hook = TargetHook(uri, backbone, embedder.make_retriever, **SIZES)
    index_documents(
        [folder], uri, backbone, hook=Seen(), processes=1, embedder=embedder, encode_hook=target_hook
    )


def run(uri: str, backbone: Backbone, encoder: MultiVectorEncoder, hook: RecordingHook) -> Calibration:
    with PageStore.open(uri) as store:
        retriever = LateInteraction(encoder, store)
        return calibrate(store, backbone=backbone, retriever=retriever, hook=hook, **SIZES)


def vectors(uri: str) -> list[bytes]:
    with PageStore.open(uri) as store:
        pages = store.pages(store.page_ids(), vectors=True)
        return [np.asarray(page.vectors).tobytes() for page in pages]


def test_pages_are_embedded_once_and_no_page_is_read_again(
    small_backbone: Backbone, encoder: MultiVectorEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    write_report(docs / "a.pdf", pages=12, seed=1)
    index(docs, str(tmp_path / "plain"), small_backbone, encoder)
    embedded = []
    embed = MultiVectorEncoder.embed_pages

    def counted(
        self: MultiVectorEncoder, images: Sequence[Image]
    ) -> list[np.ndarray[tuple[int, ...], np.dtype[np.float16]]]:
        embedded.append(len(images))
        return embed(self, images)

    monkeypatch.setattr(MultiVectorEncoder, "embed_pages", counted)
    uri = str(tmp_path / "onepass")
    index(docs, uri, small_backbone, AheadEmbedder(encoder, max_pixels=small_backbone.max_pixels))
    assert sum(embedded) == 12
    assert contents(Path(uri)) == contents(tmp_path / "plain")
    assert vectors(uri) == vectors(str(tmp_path / "plain"))
    write_report(docs / "b.pdf", pages=6, seed=2)  # later pages meet those that are stored
    index(docs, uri, small_backbone, AheadEmbedder(encoder, max_pixels=small_backbone.max_pixels))
    assert sum(embedded) == 18
    hook = RecordingHook()
    calibration = run(uri, small_backbone, encoder, hook)
    assert calibration.retriever == encoder.name
    assert hook.plans[0].pages > 0


def test_a_first_index_foresees_every_candidate(
    small_backbone: Backbone, encoder: MultiVectorEncoder, tmp_path: Path
) -> None:
    (tmp_path / "docs").mkdir()
    write_report(tmp_path / "docs/a.pdf", pages=18, seed=1)
    uri = str(tmp_path / "store")
    index(
        tmp_path / "docs", uri, small_backbone, AheadEmbedder(encoder, max_pixels=small_backbone.max_pixels)
    )
    hook = RecordingHook()
    run(uri, small_backbone, encoder, hook)
    assert hook.plans[0].pages_to_encode == 0


def test_too_many_pages_to_hold_are_indexed_all_the_same(
    small_backbone: Backbone, encoder: MultiVectorEncoder, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "docs").mkdir()
    write_report(tmp_path / "docs/a.pdf", pages=18, seed=1)
    uri = str(tmp_path / "store")
    small = AheadEmbedder(encoder, max_pixels=small_backbone.max_pixels, capacity_bytes=1)
    index(tmp_path / "docs", uri, small_backbone, small)
    assert "read again afterwards" in caplog.text
    hook = RecordingHook()
    run(uri, small_backbone, encoder, hook)
    assert hook.plans[0].pages_to_encode == hook.pages_with_targets > 0
