"""`make validate-gpu`, cut down to a small random model: every step runs, and nothing is computed twice."""

import json
from pathlib import Path

import pytest
from PIL import Image

from experiments import validate_gpu
from experiments.datasets.base import Benchmark, BenchmarkCorpus
from experiments.reproduce.settings import ExperimentSettings
from experiments.reproduce.stages.checkpoint import SilentProgress
from experiments.reproduce.stages.model_cache import ModelCache
from experiments.validate_gpu import own_margins
from miniature import weights
from ridgerank.backbones.base import Backbone, full_margins
from ridgerank.calibration.readout_file import ReadoutFile
from ridgerank.errors import DatasetError
from ridgerank.records import Query
from tests.conftest import write_pdf

PAGES, QUERIES = 12, 40


@pytest.fixture
def settings(tmp_path: Path, model_folder: Path) -> ExperimentSettings:
    write_pdf(tmp_path / "documents" / "a.pdf", pages=PAGES)
    queries = tuple(
        Query(f"q{number}", f"What does page {number} say of {number}?") for number in range(QUERIES)
    )
    qrels = {query.query_id: {f"a.pdf#{number % PAGES + 1}": 1} for number, query in enumerate(queries)}
    corpus = BenchmarkCorpus("Econ", (tmp_path / "documents",), queries, qrels)
    return ExperimentSettings(
        families=(Benchmark("tiny", (corpus,)),),
        backbones=(str(model_folder),),
        retrievers=(str(weights("mini-colqwen-small")),),
        candidates=5,
        depths=(5,),
        device="cpu",
    )


def test_all_steps_run_on_a_small_sample_and_are_kept(
    settings: ExperimentSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    validate_gpu.validate(settings, tmp_path / "work", out, SilentProgress())
    quality, machine = json.loads((out / "report.json").read_text())
    methods = [row["cells"][0] for row in quality["rows"]]
    assert methods[:3] == ["retriever", "full cross encoder", "full cross encoder"]
    assert methods[3:] == ["RidgeRank, `paper`"] * 2 + ["RidgeRank, `small`"] * 2
    assert f"{QUERIES // 2} queries that no readout saw" in quality["caption"]
    assert {"memory GB", "ms of a pass over the longest pages"} <= {
        row["cells"][0] for row in machine["rows"]
    }
    assert "RidgeRank, `small`" in (out / "report.md").read_text()
    assert ReadoutFile.load(out / "readout-small.ridge").fitted_on == ("Econ",)
    monkeypatch.setattr(ModelCache, "load_encoder", lambda *_: pytest.fail("embedded again"))
    monkeypatch.setattr(validate_gpu, "check_machine", lambda *_: {})
    validate_gpu.validate(settings, tmp_path / "work", out, SilentProgress())


def test_a_retriever_far_below_its_published_figure_ends_it(
    settings: ExperimentSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validate_gpu, "check_machine", lambda *_: {})
    monkeypatch.setattr(validate_gpu, "PUBLISHED", {("Econ", settings.retrievers[0]): 100.0})
    with pytest.raises(DatasetError, match=r"published are 100\.0"):
        validate_gpu.validate(settings, tmp_path / "work", tmp_path / "out", SilentProgress())


def test_margins_are_compared_with_transformers_own(small_backbone: Backbone) -> None:
    pages = [Image.new("RGB", (90, 120), color) for color in ("white", "gray")]
    ours = full_margins(small_backbone, "revenue", pages)
    assert ours.numpy() == pytest.approx(own_margins(small_backbone, "revenue", pages), abs=1e-4)
