"""Claims about the package as a whole: its front door, what it needs to start, what the wheel holds."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import ridgerank

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src/ridgerank"
IMPORTS = ast.Import | ast.ImportFrom
LIGHT = [
    "ridgerank",
    "ridgerank.cli.main",
    "ridgerank.fusion.weight",
    "ridgerank.fusion.runs",
    "ridgerank.readout.ridge",
    "ridgerank.documents.render",
    "ridgerank.evaluation.metrics",
]
HEAVY = {"torch", "transformers", "lance", "pyarrow", "PIL", "pypdfium2", "fastapi", "ray", "matplotlib"}


def run_python(code: str, *, cwd: Path | None = None) -> str:
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=cwd)
    return done.stdout


def test_the_front_door_shows_what_it_has() -> None:
    assert dir(ridgerank) == ridgerank.__all__
    for name in ridgerank.__all__:
        assert getattr(ridgerank, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Rerank'; it has PageFilter"):
        _ = ridgerank.Rerank


def test_light_parts_import_nothing_heavy() -> None:
    """Help imports nothing heavy either: it is shown by `cli.main`."""
    code = (
        f"import sys, {', '.join(LIGHT)}\nfrom ridgerank.cli.main import app\n"
        "try:\n    app(['--help'])\nexcept SystemExit:\n    pass\n"
        f"print('heavy:', sorted({HEAVY!r} & set(sys.modules)))"
    )
    assert run_python(code).strip().endswith("heavy: []")


def test_fusion_ridge_and_metrics_work_without_torch() -> None:
    script = """
import sys
sys.modules["torch"] = sys.modules["transformers"] = None
import numpy as np
from ridgerank.evaluation.metrics import evaluate
from experiments.simulation import World, simulate
from ridgerank.fusion.runs import fuse_runs, join
from ridgerank.readout.moments import CenteredMoments
from ridgerank.readout.ridge import ridge_path
sample = simulate(World(), queries=5, seed=0)
fused = fuse_runs(join(sample.run(sample.retriever), sample.run(sample.reranker)), 0.5)
assert evaluate(fused, sample.qrels()).means()["nDCG@5"] > 0
moments = CenteredMoments(3)
moments.add(np.eye(3), np.arange(3.0))
assert ridge_path(moments).shape == (10, 3)
"""
    run_python(script)


def test_the_package_trains_nothing() -> None:
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text()
        assert "torch.optim" not in text, path
        assert ".backward(" not in text, path


def test_a_system_without_the_calls_that_only_linux_has_indexes_and_reads(tmp_path: Path) -> None:
    """As on macOS, and without `fcntl`, too: nothing is locked then, and a warning says so."""
    script = """
import os, sys
del os.sched_getaffinity, os.RWF_NOWAIT
sys.modules["fcntl"] = None
from ridgerank.processes import usable_cores
from ridgerank.store.page_store import PageStore
from ridgerank.store.store_writer import StoreWriter
from tests.store.pages import LINEAGE, row
with StoreWriter(sys.argv[1], LINEAGE) as writer:
    writer.append([row(number) for number in range(3)])
with PageStore.open(sys.argv[1]) as store:
    print(len(store.read_prefixes(store.page_ids())), usable_cores() > 0)
"""
    command = [sys.executable, "-c", script, str(tmp_path / "store")]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.split() == ["3", "True"]
    assert "files cannot be locked here" in done.stderr


def test_windows_is_refused_in_a_sentence() -> None:
    script = """
import sys
sys.platform = "win32"
try:
    import ridgerank
except ImportError as error:
    print(error)
"""
    assert "not on Windows" in run_python(script)
