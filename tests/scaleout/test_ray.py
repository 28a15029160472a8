"""On a real Ray cluster: what one process gives, though workers are killed; and what is refused before."""

import json
import sys
import types
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from starlette.testclient import TestClient
from typer.testing import CliRunner

from ridgerank.backbones.base import Backbone
from ridgerank.backbones.model_settings import ModelSettings
from ridgerank.calibration.calibrate import calibrate
from ridgerank.cli.main import app
from ridgerank.errors import BackboneError, ClusterError, LineageMismatch
from ridgerank.indexing import encode
from ridgerank.indexing import ray as ray_indexing
from ridgerank.indexing.index import IndexProgress, IndexReport, ProgressCallback, index_documents
from ridgerank.indexing.ray import (
    EncodingPlan,
    EncodingWorker,
    connect_ray,
    describe_plan,
    index_on_ray,
    plan_workers,
)
from ridgerank.lineage import Keep, StorageSetting
from ridgerank.reranker.options import RerankerOptions
from ridgerank.serving.app import create_app
from ridgerank.serving.server import deploy
from ridgerank.serving.service import Service
from ridgerank.serving.settings import ServeSettings
from ridgerank.serving.stores import open_stores
from ridgerank.store.page_store import PageStore
from tests.indexing.test_index import contents
from tests.scaleout.local_ray import TWO_WORKERS, free_ports, kill_worker, workers

pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own

OPTIONS: Any = {
    "query_count": 20,
    "candidates": 8,
    "retriever": "bm25",
    "target": "margin",
    "state": "last",
}
MAX_PIXELS = 30 * 28 * 28
QUERY = "profit of Norway rose"
DOCUMENTS = [f"report-0.pdf#{page}" for page in range(1, 9)]
SEARCH_WITHIN = {"query": QUERY, "k": 8, "documents": ["*-1.pdf"]}


@pytest.fixture(scope="module", autouse=True)
def _single_thread() -> Iterator[None]:
    """As many as a worker of one CPU has: the last bits of a product depend on it."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def local(reports: Path, small_backbone: Backbone, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The reports indexed and calibrated in this process."""
    uri = str(tmp_path_factory.mktemp("local") / "store")
    index_documents([reports], uri, small_backbone, preset="paper", processes=0)
    with PageStore.open(uri) as store:
        calibrate(store, backbone=small_backbone, **OPTIONS)
    return uri


@pytest.fixture
def plan(model_folder: Path) -> EncodingPlan:
    model = ModelSettings(str(model_folder), device="cpu", max_pixels=MAX_PIXELS)
    return EncodingPlan(model, partial(StorageSetting.from_preset, "paper"))


def on_ray(
    reports: Path,
    uri: str,
    plan: EncodingPlan,
    ray: Any,  # noqa: ANN401
    progress: ProgressCallback,
) -> IndexReport:
    return index_on_ray([reports], uri, plan, ray=ray, workers=TWO_WORKERS, progress=progress)


def test_a_store_made_on_ray_is_the_local_one_though_a_worker_is_killed(
    reports: Path,
    local: str,
    plan: EncodingPlan,
    ray_module: Any,  # noqa: ANN401
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ray_indexing, "_TASK_PAGES", 8)
    monkeypatch.setattr(encode, "_COMMIT_PAGES", 8)
    done: list[int] = []

    def kill_after_the_first_commit(state: IndexProgress) -> None:
        if not state.searchable:
            done.append(state.done)
            if len(done) == 2:
                kill_worker("EncodingWorker")

    report = on_ray(reports, str(tmp_path / "store"), plan, ray_module, kill_after_the_first_commit)
    assert (report.pages, report.added, report.skipped, report.failures) == (40, 40, 0, ())
    assert done == [0, 8, 16, 24, 32, 40]
    assert list(contents(tmp_path / "store").items()) == list(contents(local).items())


def test_an_interrupted_run_on_ray_is_gone_on_with_by_one_machine(
    reports: Path,
    local: str,
    plan: EncodingPlan,
    ray_module: Any,  # noqa: ANN401
    small_backbone: Backbone,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ray_indexing, "_TASK_PAGES", 8)
    monkeypatch.setattr(encode, "_COMMIT_PAGES", 8)
    uri = str(tmp_path / "store")

    def interrupt(state: IndexProgress) -> None:
        if state.done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        on_ray(reports, uri, plan, ray_module, interrupt)
    report = index_documents([reports], uri, small_backbone, preset="paper", processes=0)
    assert (report.added, report.skipped) == (32, 8)
    assert list(contents(uri).items()) == list(contents(local).items())


def test_a_worker_with_another_model_is_refused(plan: EncodingPlan, tmp_path: Path) -> None:
    description, _ = describe_plan(plan, str(tmp_path / "new"), None)
    other = replace(plan, storage=partial(plan.storage, keep=Keep.parse("stride 1/2")))
    with pytest.raises(LineageMismatch, match="stride 1/2"):
        EncodingWorker(other, description)


def test_a_cluster_without_gpus_has_a_worker_for_every_cpu(ray_module: Any) -> None:  # noqa: ANN401
    assert plan_workers(ray_module, None, None).count == 4
    assert plan_workers(ray_module, 2, "cpu") == TWO_WORKERS


def post(url: str, body: dict[str, Any]) -> tuple[int, Any]:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_a_deployment_answers_as_one_process_does_though_a_replica_is_killed(
    local: str,
    ray_module: Any,  # noqa: ANN401
) -> None:
    options, settings = RerankerOptions(device="cpu"), ServeSettings()
    body = {"query": QUERY, "documents": DOCUMENTS}
    stores = {"default": local}
    service = Service(open_stores(stores, options), settings)
    with TestClient(create_app(service), base_url="http://127.0.0.1") as client:
        expected = client.post("/v1/rerank", json=body).json()["results"]
    [port] = free_ports(1)
    worker = plan_workers(ray_module, 1, "cpu")
    deploy(stores, options, settings, replicas=(2, 2), worker=worker, host="127.0.0.1", port=port)
    try:
        address = f"http://127.0.0.1:{port}"
        before = {process.pid for process in workers("ServeReplica")}
        status, answer = post(f"{address}/v1/search", SEARCH_WITHIN)
        assert status == 200, answer
        assert {page["reference"].partition("#")[0] for page in answer["results"]} == {"report-1.pdf"}
        kill_worker("ServeReplica")
        for _ in range(3):
            status, answer = post(f"{address}/v1/rerank", body)
            assert (status, answer["results"]) == (200, expected)
        assert len(before) == 2
    finally:
        from ray import serve

        serve.shutdown()


class Cluster:
    """Ray's module, as far as `plan_workers` asks."""

    def __init__(self, **resources: float) -> None:
        self._resources = resources

    def cluster_resources(self) -> dict[str, float]:
        return self._resources


def test_a_worker_takes_a_gpu_where_there_are_any() -> None:
    workers = plan_workers(Cluster(CPU=32, GPU=4), None, None)
    assert (workers.count, workers.resources["num_gpus"]) == (4, 1)
    assert plan_workers(Cluster(CPU=32, GPU=4), 2, "cuda").count == 2
    assert plan_workers(Cluster(CPU=32, GPU=4), None, "cpu").resources == {"num_cpus": 1.0, "num_gpus": 0.0}


def test_a_gpu_that_no_machine_has_is_refused() -> None:
    with pytest.raises(BackboneError, match="no GPU in the Ray cluster"):
        plan_workers(Cluster(CPU=8), None, "cuda")


def test_one_pass_is_not_for_ray(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").touch()
    words = ["index", str(tmp_path), "--store", str(tmp_path / "s"), "--ray", "local", "--calibrate"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 2
    assert "not with --ray" in done.output


def test_a_local_cluster_is_a_new_one_whatever_runs_already(monkeypatch: pytest.MonkeyPatch) -> None:
    connected: list[object] = []
    ray = types.ModuleType("ray")
    ray.is_initialized, ray.shutdown = lambda: bool(connected), lambda: None  # type: ignore[attr-defined]
    ray.init = lambda address=None, **_: connected.append(address)  # type: ignore[attr-defined]
    monkeypatch.setattr("ridgerank.indexing.ray.require_packages", lambda *_: None)
    for name in ("ray", "ray.data"):
        monkeypatch.setitem(sys.modules, name, ray)
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    with connect_ray("local"):
        assert connected == ["local"]  # None would be the running cluster's address
    with pytest.raises(ClusterError, match="is connected to a Ray cluster"), connect_ray("local"):
        pass
