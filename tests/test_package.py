"""Claims about the package as a whole: what it exports, what it needs to start, how fast it starts."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

import ridgerank

LIGHT = [
    "ridgerank",
    "ridgerank.cli.main",
    "ridgerank.fusion.estimate",
    "ridgerank.fusion.join",
    "ridgerank.readout.ridge",
    "ridgerank.readout.readout",
    "ridgerank.evaluation.metrics",
    "experiments.protocols.weight_sweep",
    "experiments.miniature_training.training_pages",
]


def test_exported_names() -> None:
    assert ridgerank.__all__ == ["__version__"]


@pytest.mark.parametrize("module", LIGHT)
def test_light_parts_start_in_half_a_second_without_torch(module: str) -> None:
    blocked = "import sys; sys.modules['torch'] = sys.modules['transformers'] = None; "
    times = []
    for _ in range(5):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", f"{blocked}import {module}"], check=True)
        times.append(time.perf_counter() - start)
    assert min(times) < 0.5


def test_fusion_ridge_and_metrics_work_without_torch(tmp_path: Path) -> None:
    script = """
import sys
sys.modules["torch"] = sys.modules["transformers"] = None
import numpy as np
from ridgerank.evaluation.metrics import evaluate
from ridgerank.evaluation.simulation import World, simulate
from ridgerank.fusion.join import fuse_runs, join
from ridgerank.readout.moments import CenteredMoments
from ridgerank.readout.ridge import ridge_path
sample = simulate(World(), queries=5, seed=0)
fused = fuse_runs(join(sample.run(sample.retriever), sample.run(sample.reranker)), 0.5)
assert evaluate(fused, sample.qrels()).means()["nDCG@5"] > 0
moments = CenteredMoments(3)
moments.add(np.eye(3), np.arange(3.0))
assert ridge_path(moments).shape == (10, 3)
"""
    subprocess.run([sys.executable, "-c", script], check=True, cwd=tmp_path)


def test_help_starts_in_half_a_second() -> None:
    times = []
    for _ in range(5):
        start = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "ridgerank.cli.main", "--help"], check=True, capture_output=True
        )
        times.append(time.perf_counter() - start)
    assert min(times) < 0.5
