"""The whole of it, cut down: every table and figure is there, and nothing is computed twice."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from experiments.baselines.base import Unavailable
from experiments.baselines.gqr import GRID
from experiments.reproduce.__main__ import app
from experiments.reproduce.analysis import Analysis
from experiments.reproduce.catalogue import CATALOGUE
from experiments.reproduce.experiment import Experiment
from experiments.reproduce.figures.figure import PaperFigure
from experiments.reproduce.pipeline import run_experiments
from experiments.reproduce.prepare import Need
from experiments.reproduce.refined_results import evaluate_refinements
from experiments.reproduce.settings import ExperimentSettings, make_settings
from experiments.reproduce.stages.model_cache import ModelCache
from experiments.reproduce.stages.stage_progress import SilentProgress
from ridgerank.backbones.base import full_margins
from ridgerank.errors import DatasetError
from ridgerank.evaluation.metrics import MEASURES


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where `python -m experiments.reproduce --quick` was typed."""
    folder = tmp_path_factory.mktemp("reproduce")
    words = ["--quick", "--device", "cpu"]
    words += ["--work", str(folder / "work"), "--out", str(folder / "out")]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert done.exit_code == 0
    assert "RidgeRank (mini-qwen) leads every external baseline under all measures" in done.stdout
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
    assert {"claim", "where", "threshold", "measured", "holds", "reason"} == set(claims[0])
    assert len({claim["claim"] for claim in claims}) == len(claims)


def test_the_report_holds_everything_and_fetches_nothing(folder: Path) -> None:
    page = (folder / "out/report.html").read_text()
    for name in (*CATALOGUE, "directions", "run"):
        assert f'<section id="{name}">' in page
        assert f'href="#{name}"' in page
    assert page.count("<svg") == 7
    for loading in ("<script", "<link", "<img", "@import", 'src="'):
        assert loading not in page
    assert "does not hold here" in page or "holds" in page


def test_every_claim_of_the_text_has_the_papers_own_threshold(folder: Path) -> None:
    claims = json.loads((folder / "out/directions.json").read_text())
    thresholds = " ".join(f"{claim['where']}: {claim['threshold']}" for claim in claims)
    for section in (
        "abstract",
        "§4.1",
        "§4.2",
        "§4.3",
        "§4.4",
        "§4.5",
        "§B.2",
        "§B.3",
        "§B.4",
        "§B.5",
        "§B.6",
    ):
        assert section in thresholds
    for figure in ("0.898", "0.903", "0.085", "0.894", "0.975", "1.2 points", "48 times", "70 %", "98.3 %"):
        assert figure in thresholds
    assert all(claim["measured"] and claim["threshold"] for claim in claims)
    assert all(claim["reason"] == "" for claim in claims if claim["holds"])


def test_a_speed_stands_beside_its_quality_and_its_interval(folder: Path) -> None:
    table = json.loads((folder / "out/table4.json").read_text())
    columns = {name: number for number, name in enumerate(table["columns"])}
    rows = {row["cells"][1]: row["cells"] for row in table["rows"] if row["source"] == "this run"}
    for name in ("RidgeRank (mini-qwen)", "RidgeRank (mini-qwen), label-free weight", "GQR (guided by BM25)"):
        cells = rows[name]
        assert cells[columns["nDCG@5"]] is not None
        assert cells[columns["speedup from"]] <= cells[columns["speedup to"]]
        assert cells[columns["latency from"]] <= cells[columns["latency to"]]
    ours = rows["RidgeRank (mini-qwen)"]
    assert ours[columns["recovery, %"]] == ours[columns["recovery of its own cross encoder, %"]]
    [speed] = [
        claim
        for claim in json.loads((folder / "out/directions.json").read_text())
        if claim["where"].startswith("abstract, §4.2, table 4")
    ]
    assert "at nDCG@5" in speed["measured"]


def test_gqr_gets_the_setting_that_is_best_on_the_next_corpus(analysis: Analysis) -> None:
    retriever = analysis.settings.retrievers[0]
    method = analysis.result(0, retriever, "GQR")
    by_setting = []
    for corpus_key in analysis.experiment.corpus_keys(0):
        scores = analysis.experiment.baseline_scores(corpus_key, retriever, "GQR")
        assert not isinstance(scores, Unavailable)
        assert scores.scores.shape[1] == len(GRID)
        assert np.isfinite(scores.latency_ms).any(axis=1).all()
        corpus, names = analysis.experiment.corpus(corpus_key), analysis.references(corpus_key)
        by_setting.append(evaluate_refinements(scores, corpus, names))
    row = MEASURES.index("nDCG@5")
    for number, result in enumerate(method.by_corpus):
        inner = by_setting[(number + 1) % len(by_setting)][:, row].mean(axis=1)
        chosen = int(np.flatnonzero(inner == inner.max())[0])
        assert result.mean() == pytest.approx(by_setting[number][chosen, row].mean())
        assert f"{GRID[chosen][0]:g} and {GRID[chosen][1]}" in method.remark


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
        from ridgerank.store.sidecar import rerender_pages

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
