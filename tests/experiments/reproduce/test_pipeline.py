"""The whole of it, cut down: every table and figure is there, and nothing is computed twice."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from experiments.baselines.base import Unavailable
from experiments.reproduce.analysis import Analysis
from experiments.reproduce.catalogue import CATALOGUE
from experiments.reproduce.experiment import Experiment
from experiments.reproduce.figures.figure import PaperFigure
from experiments.reproduce.pipeline import run_experiments
from experiments.reproduce.prepare import Need
from experiments.reproduce.settings import ExperimentSettings, make_settings
from experiments.reproduce.stages.model_cache import ModelCache
from experiments.reproduce.stages.stage_progress import SilentProgress
from ridgerank.backbones.full_depth import full_margins
from ridgerank.cli.main import app
from ridgerank.errors import DatasetError


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where `ridgerank reproduce --quick` was typed."""
    folder = tmp_path_factory.mktemp("reproduce")
    words = ["reproduce", "--quick", "--device", "cpu"]
    words += ["--work", str(folder / "work"), "--out", str(folder / "out")]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert done.exit_code == 0
    assert "RidgeRank (mini-qwen) is above every external baseline" in done.stdout
    return folder


@pytest.fixture
def settings(folder: Path) -> ExperimentSettings:
    return make_settings("miniature", folder / "work", device="cpu", quick=True)


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
        kinds = ["json", "md", "tex", *(["png", "svg"] if name.startswith("figure") else [])]
        for kind in kinds:
            assert (folder / f"out/{name}.{kind}").stat().st_size > 0, f"{name}.{kind}"
    claims = json.loads((folder / "out/directions.json").read_text())
    assert {"claim", "holds", "found"} == set(claims[0])


def test_the_report_holds_everything_and_fetches_nothing(folder: Path) -> None:
    page = (folder / "out/report.html").read_text()
    for name in (*CATALOGUE, "directions", "run"):
        assert f'<section id="{name}">' in page
        assert f'href="#{name}"' in page
    assert page.count("<svg") == 7
    for loading in ("<script", "<link", "<img", "@import", 'src="'):
        assert loading not in page
    assert "does not hold here" in page or "holds" in page


def test_figures_of_the_paper_are_marked(folder: Path) -> None:
    rows = json.loads((folder / "out/table1.json").read_text())["rows"]
    sources = {row["source"] for row in rows}
    assert sources == {"this run", "paper, A100"}
    published = [row["cells"] for row in rows if row["source"] != "this run"]
    assert ["ColNomic-7B", "No reranking", 60.9] in [cells[:3] for cells in published]
    assert "(paper, A100)" in (folder / "out/table1.md").read_text()


@pytest.mark.usefixtures("no_models")
def test_a_second_run_computes_nothing_and_says_the_same(
    folder: Path, settings: ExperimentSettings, tmp_path: Path
) -> None:
    run_experiments(
        settings, folder / "work/stages", tmp_path, SilentProgress(), only=("table1", "table3", "figure6")
    )
    for name in ("table1.json", "table3.json", "figure6.json", "figure6.svg"):
        assert (tmp_path / name).read_bytes() == (folder / "out" / name).read_bytes(), name
    assert not (tmp_path / "table2.json").exists()


def test_a_table_asks_for_no_more_than_it_needs() -> None:
    assert CATALOGUE["table3"].needs == {Need.FIRST}
    assert Need.LAYERS not in CATALOGUE["table1"].needs


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


def test_margins_are_those_of_full_passes(analysis: Analysis) -> None:
    experiment, settings = analysis.experiment, analysis.settings
    corpus_key, backbone, retriever = (
        experiment.corpus_keys(1)[1],
        settings.backbones[0],
        settings.retrievers[0],
    )
    corpus, pools = experiment.corpus(corpus_key), experiment.pools(corpus_key, retriever)
    with experiment.open_shallow(corpus_key, backbone) as shallow:
        from ridgerank.store.rerender import rerender_pages

        model = experiment.models.load_backbone(backbone)
        page_ids = pools.page_ids[2, : settings.candidates].tolist()
        seen = rerender_pages(shallow.get().store, page_ids, max_pixels=model.max_pixels)
        pages = {page.page_id: page for batch in seen for page in batch}
        contents = [model.content(pages[page_id]) for page_id in page_ids]
        expected = full_margins(model, corpus.queries[2].text, contents).numpy()
    np.testing.assert_allclose(
        experiment.margins(corpus_key, backbone, retriever)[2], expected, rtol=1e-3, atol=1e-3
    )


def test_readouts_of_the_second_family_are_averaged_by_measure(analysis: Analysis) -> None:
    settings = analysis.settings
    backbone, retriever = settings.backbones[0], settings.retrievers[0]
    by_readout = analysis.scores_by_readout(1, retriever, backbone)
    assert len(by_readout) == 3  # one for each corpus of the first family
    assert len(analysis.scores_by_readout(0, retriever, backbone)) == 1
    method = analysis.result(1, retriever, f"ours {backbone}")
    assert len(method.by_corpus) == 2
    assert np.isfinite(method.macro())


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


def test_a_picture_of_the_same_data_has_the_same_bytes(analysis: Analysis) -> None:
    figure = CATALOGUE["figure6"].compute(analysis)
    assert isinstance(figure, PaperFigure)
    assert figure.render("svg") == figure.render("svg")
