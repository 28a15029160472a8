"""What is refused before a cluster is asked for anything."""

import sys
import types
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ridgerank.cli.main import app
from ridgerank.errors import BackboneError, ClusterError
from ridgerank.indexing.ray import connect_ray, plan_workers


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
