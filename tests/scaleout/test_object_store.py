"""A store in a bucket is a store: the same bytes, the same rankings, and no more asked of it than needed."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from lance.file import LanceFileSession

from ridgerank.backbones.base import Backbone
from ridgerank.calibration.artifact import Calibration
from ridgerank.calibration.calibrate import TARGETS_STEP, calibrate
from ridgerank.calibration.teacher import TargetCache
from ridgerank.errors import ArtifactError
from ridgerank.indexing.index import index_documents
from ridgerank.reranker.reranker import Reranker
from ridgerank.retrievers.dense import Embeddings
from ridgerank.store import lance_dataset, sidecar
from ridgerank.store.maintenance import find_damage
from ridgerank.store.page_store import PageStore
from ridgerank.store.sidecar import (
    open_calibrations,
    recall_sources,
    remember_sources,
)
from tests.calibrated_store import WordOverlap
from tests.calibration.conftest import RecordingProgress
from tests.indexing.test_index import contents
from tests.loopback_s3 import BUCKET, KEY_ID, SECRET, Traffic

QUERY = "profit of Norway rose"

_KILLED = """
import os, signal, sys
from ridgerank.indexing import encode, index
from ridgerank.backbones.load import load_backbone

def die(state):
    if state.done == 16:
        os.kill(os.getpid(), signal.SIGKILL)

encode._COMMIT_PAGES = 8
backbone = load_backbone(sys.argv[3], device="cpu", max_pixels=30 * 28 * 28)
index.index_documents([sys.argv[1]], sys.argv[2], backbone, progress=die, preset="paper", processes=0)
"""


@pytest.fixture(scope="module")
def local(reports: Path, small_backbone: Backbone, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The reports in a store on disk, calibrated."""
    uri = str(tmp_path_factory.mktemp("local") / "store")
    index_documents([reports], uri, small_backbone, preset="paper", processes=0)
    _calibrate(uri, small_backbone)
    return uri


@pytest.fixture(scope="module")
def bucket(reports: Path, small_backbone: Backbone, model_folder: Path, s3: Traffic) -> str:
    """The same in a bucket: indexing was killed between two commits and run again."""
    uri = f"s3://{BUCKET}/reports"
    command = [sys.executable, "-W", "ignore", "-c", _KILLED, str(reports), uri, str(model_folder)]
    killed = subprocess.run(command, check=False, cwd=Path(__file__).parents[2])
    assert killed.returncode == -signal.SIGKILL
    with PageStore.open(uri) as half:
        assert 0 < len(half.pending()) < len(half) == 40
    report = index_documents([reports], uri, small_backbone, preset="paper", processes=0)
    assert (report.added, report.skipped) == (24, 16)
    _calibrate(uri, small_backbone)
    return uri


def _calibrate(uri: str, backbone: Backbone, progress: RecordingProgress | None = None) -> Calibration:
    with PageStore.open(uri) as store:
        retriever = WordOverlap(store.texts())
        return calibrate(
            store,
            backbone=backbone,
            retriever=retriever,
            query_count=20,
            candidates=8,
            progress=progress or RecordingProgress(),
        )


def test_killed_and_run_again_a_bucket_holds_the_bytes_of_a_folder(bucket: str, local: str) -> None:
    assert list(contents(bucket).items()) == list(contents(local).items())
    assert list(find_damage(bucket)) == []


def test_a_calibration_in_a_bucket_is_the_one_of_a_folder(bucket: str, local: str) -> None:
    with PageStore.open(local) as store, open_calibrations(local) as folder:
        here = Calibration.load(folder, lineage=store.lineage)
    with PageStore.open(bucket) as store, open_calibrations(bucket) as folder:
        there = Calibration.load(folder, lineage=store.lineage)
        assert [path.name for path in folder.iterdir()] == ["default.safetensors"]
        with pytest.raises(ArtifactError, match="there: default"):
            Calibration.load(folder, "other")
    np.testing.assert_allclose(there.readout.vector, here.readout.vector, rtol=1e-12)
    assert there.weight.weight == pytest.approx(here.weight.weight, rel=1e-12)
    names = set(lance_dataset.RemoteFolder(bucket, "calibrations").names())
    assert names == {"default.json", "default.png", "default.safetensors", "margins.jsonl", "states.npz"}


def test_a_bucket_ranks_as_a_folder_does(bucket: str, local: str, small_backbone: Backbone) -> None:
    rankings = []
    for uri in (bucket, local):
        with PageStore.open(uri) as store:
            retriever = WordOverlap(store.texts())
        with Reranker.open(uri, backbone=small_backbone, retriever=retriever) as reranker:
            rankings.append(reranker.search(QUERY, k=12, top_k=12))
    assert rankings[0].pages == rankings[1].pages


def test_a_query_asks_for_its_prefixes_and_little_else(bucket: str, s3: Traffic) -> None:
    with PageStore.open(bucket) as store:
        ids = store.page_ids()[3:15]
        prefix_bytes = sum(entry.nbytes for entry in store.catalog.entries(ids))
        store.read_prefixes(ids)
        s3.clear()
        store.read_prefixes(ids)
        assert set(s3.methods) == {"GET"}
        assert s3.methods["GET"] <= len(ids)
        assert prefix_bytes <= s3.nbytes <= 1.1 * prefix_bytes


def test_an_interrupted_calibration_in_a_bucket_goes_on(bucket: str, small_backbone: Backbone) -> None:
    with open_calibrations(bucket, edit=True) as folder:
        (folder / "margins.jsonl").write_text("")
    stopped = RecordingProgress(interrupt={TARGETS_STEP: 8})
    with pytest.raises(KeyboardInterrupt):
        _calibrate(bucket, small_backbone, stopped)
    with PageStore.open(bucket) as store, open_calibrations(bucket, edit=True) as folder:
        taught = len(TargetCache(folder, store.lineage))
    assert taught > 0
    resumed = RecordingProgress()
    _calibrate(bucket, small_backbone, resumed)
    assert resumed.total[TARGETS_STEP] == stopped.total[TARGETS_STEP] - 8


def test_margins_reach_the_bucket_while_a_calibration_runs(
    s3: Traffic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sidecar, "_UPLOAD_INTERVAL_S", 0.05)
    uri = f"s3://{BUCKET}/saved"
    with open_calibrations(uri, edit=True) as folder:
        (folder / "margins.jsonl").write_text("first\n")
        saved = lance_dataset.RemoteFolder(uri, "calibrations")
        until = time.monotonic() + 300
        while "margins.jsonl" not in saved.names() and time.monotonic() < until:
            time.sleep(0.05)
        assert "margins.jsonl" in saved.names()


def test_sources_and_embeddings_are_kept_in_the_bucket(s3: Traffic, tmp_path: Path) -> None:
    uri = f"s3://{BUCKET}/beside"
    (tmp_path / "a.pdf").touch()
    remember_sources(uri, {"a.pdf": tmp_path / "a.pdf"})
    remember_sources(uri, {"b.pdf": tmp_path / "gone.pdf"})
    assert recall_sources(uri, ["a.pdf", "b.pdf"]) == [tmp_path / "a.pdf"]
    vectors = np.arange(6, dtype=np.float32).reshape(2, 3)
    Embeddings(uri, "f").add(["one", "two"], vectors)
    np.testing.assert_array_equal(Embeddings(uri, "f").rows(["two"]), vectors[1:])
    assert "one" not in Embeddings(uri, "g")


def test_no_credential_is_written_anywhere(bucket: str, tmp_path: Path) -> None:
    whole = LanceFileSession(bucket)
    names = whole.list()
    assert any(name.startswith("_versions/") for name in names)
    for number, name in enumerate(names):
        whole.download_file(name, str(tmp_path / str(number)))
        assert not any(
            secret.encode() in (tmp_path / str(number)).read_bytes() for secret in (KEY_ID, SECRET)
        ), name
