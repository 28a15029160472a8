"""The whole of it, cut down: every table and figure is there, and nothing is computed twice."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from experiments.baselines.base import Unavailable
from experiments.reproduce.__main__ import app
from experiments.reproduce.analysis import Analysis
from experiments.reproduce.experiment import Experiment
from experiments.reproduce.pipeline import CATALOGUE, run_experiments
from experiments.reproduce.settings import ExperimentSettings, make_settings
from experiments.reproduce.stages.checkpoint import SilentProgress
from experiments.reproduce.stages.model_cache import ModelCache
from ridgerank.errors import DatasetError
from ridgerank.evaluation.metrics import evaluate
from ridgerank.trec import read_run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where `python -m experiments.reproduce --quick` was typed."""
    folder = tmp_path_factory.mktemp("reproduce")
    words = ["--quick", "--device", "cpu", "--seeds", "3"]
    words += ["--work", str(folder / "work"), "--out", str(folder / "out")]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert done.exit_code == 0
    assert "RidgeRank (mini-qwen) leads every external baseline under all measures" in done.stdout
    return folder


@pytest.fixture
def settings(folder: Path) -> ExperimentSettings:
    return make_settings("miniature", folder / "work", device="cpu", quick=True, draws=3)


@pytest.fixture
def analysis(folder: Path, settings: ExperimentSettings) -> Analysis:
    return Analysis(Experiment(settings, folder / "work/stages", SilentProgress()))


@pytest.fixture
def no_models(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: ModelCache, name: str) -> None:
        raise AssertionError(f"{name} was loaded")

    monkeypatch.setattr(ModelCache, "load_backbone", refuse)
    monkeypatch.setattr(ModelCache, "load_encoder", refuse)


def test_every_table_and_figure_is_there_in_every_form(folder: Path) -> None:
    assert {f"table{number}" for number in range(1, 10)} < set(CATALOGUE)
    assert {f"figure{number}" for number in range(2, 9)} < set(CATALOGUE)
    for name in CATALOGUE:
        kinds = ["json", "md", *(["png"] if name.startswith("figure") else [])]
        for kind in kinds:
            assert (folder / f"out/{name}.{kind}").stat().st_size > 0, f"{name}.{kind}"
    claims = json.loads((folder / "out/directions.json").read_text())
    assert {"claim", "where", "threshold", "measured", "holds", "reason"} == set(claims[0])
    assert len({claim["claim"] for claim in claims}) == len(claims)


def test_every_method_and_corpus_has_a_run_of_the_quality_in_the_table(
    folder: Path, analysis: Analysis
) -> None:
    [retriever] = analysis.settings.retrievers
    for number, family in enumerate(analysis.settings.families):
        for method in analysis.results(number, retriever):
            parts = (family.name, retriever, method.key)
            methods = (folder / "out/runs").joinpath(*(part.replace(" ", "-") for part in parts))
            for corpus, result in zip(family.corpora, method.by_corpus, strict=True):
                runs = [read_run(path) for path in methods.glob(f"{corpus.name}*.trec")]
                values = [evaluate(run, corpus.qrels).values for run in runs]
                np.testing.assert_allclose(np.mean(values, axis=0), result.values)


def test_the_draws_of_few_queries_are_as_many_as_asked_for(folder: Path) -> None:
    assert "3 draws" in (folder / "out/figure8.md").read_text()


@pytest.mark.usefixtures("no_models")
def test_a_second_run_computes_nothing_and_says_the_same(
    folder: Path, settings: ExperimentSettings, tmp_path: Path
) -> None:
    run_experiments(
        settings, folder / "work/stages", tmp_path, SilentProgress(), only=("table1", "table3", "figure6")
    )
    for name in ("table1.json", "table3.json", "figure6.json", "figure6.png"):
        assert (tmp_path / name).read_bytes() == (folder / "out" / name).read_bytes(), name
    assert not (tmp_path / "table2.json").exists()


def test_states_by_layer_agree_with_the_store_at_the_exit_layer(analysis: Analysis) -> None:
    experiment, [backbone], [retriever] = (
        analysis.experiment,
        *((list(analysis.settings.backbones), list(analysis.settings.retrievers))),
    )
    corpus_key = experiment.corpus_keys(0)[0]
    chosen = analysis.sample[0]
    by_layer = experiment.layers(corpus_key, backbone, chosen)
    stored = experiment.states(corpus_key, backbone, retriever).states[chosen]
    assert by_layer.shape[2] == 8
    np.testing.assert_allclose(by_layer[:, :, 6 - 1], stored, rtol=1e-3, atol=1e-3)
    assert not np.allclose(by_layer[:, :, 6], stored, atol=1e-1)


def test_an_arm_that_cannot_run_is_a_row_that_says_why(
    folder: Path, settings: ExperimentSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load_nothing(
        *positional: object, roles: tuple[str, ...], **options: object
    ) -> dict[str, Unavailable]:
        return {role: Unavailable(role, "its checkpoint is not on this machine") for role in roles}

    monkeypatch.setattr("experiments.baselines.load.load_baselines", load_nothing)
    monkeypatch.setattr("experiments.reproduce.stages.baseline_scores.is_complete", lambda *arguments: False)
    run_experiments(settings, folder / "work/stages", tmp_path, SilentProgress(), only=("table1", "table4"))
    rows = json.loads((tmp_path / "table1.json").read_text())["rows"]
    missing = [row for row in rows if "note" in row]
    assert len(missing) == 5
    assert all("not on this machine" in row["note"] for row in missing)
    assert "not run: its checkpoint" in (tmp_path / "table4.md").read_text()


def test_what_is_not_in_the_catalogue_is_named(
    folder: Path, settings: ExperimentSettings, tmp_path: Path
) -> None:
    with pytest.raises(DatasetError, match=r"table10.*there are: table1"):
        run_experiments(settings, folder / "work/stages", tmp_path, SilentProgress(), only=("table10",))


def test_fewer_than_three_corpora_cannot_leave_one_out(
    folder: Path, settings: ExperimentSettings, tmp_path: Path
) -> None:
    family = settings.families[0]
    small = replace(settings, families=(replace(family, corpora=family.corpora[:2]),))
    with pytest.raises(DatasetError, match="2 corpora, wanted at least 3"):
        run_experiments(small, folder / "work/stages", tmp_path, SilentProgress())
