"""The benchmark on real documents, on drawn ones with a small random model."""

import json
import shutil
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from reportlab.pdfgen.canvas import Canvas

from benchmarks import quality
from experiments.real_documents.questions import DocumentIndex
from experiments.real_documents.resample import read_written_questions, summarize, summarize_recovery
from ridgerank.records import Page
from tests.backbones.small_text_models import build_text

LANDMARKS = ("harbour", "orchard", "quarry", "station", "tower")
KINDS = ("letter", "manual", "report")


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two documents per kind, five pages each, one question per page; a small Llama beside them."""
    folder = tmp_path_factory.mktemp("drawn")
    (folder / "documents").mkdir()
    questions, judgements = [], []
    for kind in KINDS:
        for number in (1, 2):
            name = f"{kind}-{number}.pdf"
            canvas = Canvas(str(folder / "documents" / name))
            for page, landmark in enumerate(LANDMARKS, start=1):
                canvas.drawString(
                    72, 700, f"The {landmark} of {kind} {number} was opened in {1900 + page * number}."
                )
                canvas.drawString(72, 680, f"Whoever visits the {landmark} brings a lamp.")
                canvas.showPage()
                query = f"{kind}-{number}-{page}"
                text = f"When was the {landmark} opened?"
                questions.append({"query_id": query, "text": text, "document": name, "corpus": kind})
                judgements.append(f"{query} 0 {name}#{page} 1")
            canvas.save()
    (folder / "queries.jsonl").write_text("\n".join(map(json.dumps, questions)))
    (folder / "qrels.trec").write_text("\n".join(judgements) + "\n")
    build_text("llama", folder / "model")
    return folder


def options(drawn: Path, checkpoints: Path, *more: str) -> Namespace:
    paths = {"documents": "documents", "queries": "queries.jsonl", "qrels": "qrels.trec", "backbone": "model"}
    arguments = [word for name, path in paths.items() for word in (f"--{name}", str(drawn / path))]
    arguments += ["--checkpoints", str(checkpoints), "--threads", "1", "--no-ocr"]
    return quality.make_parser().parse_args([*arguments, "--latency", "1", "--keeps", "stride 1/3", *more])


@pytest.fixture(scope="module")
def checkpoints(drawn: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoints")
    quality.run(options(drawn, folder, "--out", str(folder / "results.json")))
    return folder


@pytest.fixture(scope="module")
def results(checkpoints: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((checkpoints / "results.json").read_text())
    return result


def test_every_method_has_a_row_with_its_interval(results: dict[str, Any]) -> None:
    methods = {"bm25", "teacher: margin", "teacher: likelihood, closed form"}
    for target in ("margin", "likelihood"):
        for state in ("last", "mean"):
            methods |= {
                f"stride 1/3, {target}, {state}{way}" for way in ("", ", closed form", ", label-free")
            }
    assert methods <= set(results["table"])
    assert results["table"]["bm25"]["nDCG@5"] > 90, "every question names its page's landmark"
    for row in results["table"].values():
        low, high = row["gain_interval"]
        assert low <= row["gain"] <= high


def test_bytes_speed_and_text_layers_are_reported(results: dict[str, Any]) -> None:
    assert results["bytes_a_page"]["stride 1/3"] > 0
    latency = results["latency"]
    assert set(latency["times_faster"]) == {"stride 1/3, last", "stride 1/3, mean"}
    assert latency["processor_seconds"]["retrieval"] < latency["processor_seconds"]["stride 1/3, mean"]
    assert latency["offline_seconds_a_page"]["stride 1/3"] > 0
    assert results["evidence_without_text"] == {"text layer": 0, "in use": 0}


def test_run_again_it_asks_nothing_and_finds_the_same(
    drawn: Path,
    checkpoints: Path,
    results: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("run_teacher", "run_stored"):
        monkeypatch.delattr(quality, name)
    quality.run(options(drawn, checkpoints))
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == results


def remove_stored_states(checkpoints: Path, folder: Path, pattern: str) -> Path:
    """A copy of the checkpoints as a run leaves them that is killed before it ran over stored pages."""
    copy = folder / "killed"
    shutil.copytree(checkpoints, copy)
    for path in copy.glob(f"model-*/{pattern}.stride-*.npz"):
        path.unlink()
    return copy


def test_evaluating_a_killed_run_names_and_leaves_out_incomplete_questions(
    drawn: Path, checkpoints: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    killed = remove_stored_states(checkpoints, tmp_path, "manual-2-3")
    out = tmp_path / "results.json"
    quality.run(options(drawn, killed, "--evaluate", "--out", str(out)))
    assert (
        "1 of 30 questions have no stored states yet, manual-2-3 first, which lacks stride 1/3" in caplog.text
    )
    assert json.loads(out.read_text())["questions"] == 29


def test_a_killed_run_is_completed_by_running_again(
    drawn: Path,
    checkpoints: Path,
    results: dict[str, Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    killed = remove_stored_states(checkpoints, tmp_path, "manual-2-*")
    quality.run(options(drawn, killed))
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["table"] == results["table"]


@pytest.mark.parametrize("texts", [[], [""], ["", ""], ["the of and"], ["!!!", "?"], ["the", "a harbour"]])
@pytest.mark.parametrize("query", ["", "the", "!!!", "harbour", "nowhere"])
def test_bm25_scores_pages_without_a_word_as_zero(texts: list[str], query: str) -> None:
    pages = [Page(f"{n}", f"a.pdf#{n}", Image.new("RGB", (8, 8)), text) for n, text in enumerate(texts)]
    scores = DocumentIndex(pages).score(query)
    assert (scores > 0).tolist() == [query == "harbour" and "harbour" in text for text in texts]


def test_the_intervals_follow_from_the_questions_file_alone(
    checkpoints: Path, results: dict[str, Any]
) -> None:
    written = read_written_questions(checkpoints / "results_questions.csv")
    assert len(written.queries) == results["questions"] == 30
    assert set(written.documents) == {f"{kind}-{number}.pdf" for kind in KINDS for number in (1, 2)}
    assert summarize(written) == results["table"]
    assert summarize_recovery(written) == results["recovery"]
