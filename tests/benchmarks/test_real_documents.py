"""The benchmark on real documents, on drawn ones with a small random model."""

import json
import subprocess
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
from reportlab.pdfgen.canvas import Canvas

from benchmarks import real_documents
from benchmarks.real_documents_questions import read_questions
from ridgerank.errors import DatasetError
from tests.backbones.small_text_models import build_text

PLACES = ("harbour", "orchard", "quarry", "station", "tower")
KINDS = ("letter", "manual", "report")


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two documents a kind, five pages each, a question a page; a small Llama beside them."""
    folder = tmp_path_factory.mktemp("drawn")
    (folder / "documents").mkdir()
    questions, judgements = [], []
    for kind in KINDS:
        for number in (1, 2):
            name = f"{kind}-{number}.pdf"
            canvas = Canvas(str(folder / "documents" / name))
            for page, place in enumerate(PLACES, start=1):
                canvas.drawString(
                    72, 700, f"The {place} of {kind} {number} was opened in {1900 + page * number}."
                )
                canvas.drawString(72, 680, f"Whoever visits the {place} brings a lamp.")
                canvas.showPage()
                query = f"{kind}-{number}-{page}"
                text = f"When was the {place} opened?"
                questions.append({"query_id": query, "text": text, "document": name, "corpus": kind})
                judgements.append(f"{query} 0 {name}#{page} 1")
            canvas.save()
    (folder / "queries.jsonl").write_text("\n".join(map(json.dumps, questions)))
    (folder / "qrels.trec").write_text("\n".join(judgements) + "\n")
    build_text("llama", folder / "model")
    return folder


def options(drawn: Path, checkpoints: Path, *more: str) -> Namespace:
    paths = {"documents": "documents", "queries": "queries.jsonl", "qrels": "qrels.trec", "backbone": "model"}
    given = [word for name, path in paths.items() for word in (f"--{name}", str(drawn / path))]
    given += ["--checkpoints", str(checkpoints), "--threads", "1", "--no-ocr"]
    return real_documents.parser().parse_args([*given, "--latency", "1", "--keeps", "stride 1/3", *more])


@pytest.fixture(scope="module")
def checkpoints(drawn: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoints")
    real_documents.run(options(drawn, folder, "--out", str(folder / "found.json")))
    return folder


@pytest.fixture(scope="module")
def found(checkpoints: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((checkpoints / "found.json").read_text())
    return result


def test_every_arm_has_a_row_with_its_interval(found: dict[str, Any]) -> None:
    arms = {"bm25", "teacher: margin", "teacher: likelihood, closed form"}
    for target in ("margin", "likelihood"):
        for state in ("last", "mean"):
            arms |= {f"stride 1/3, {target}, {state}{way}" for way in ("", ", closed form", ", label-free")}
    assert arms <= set(found["table"])
    assert found["table"]["bm25"]["nDCG@5"] > 90, "every question names its page's place"
    for row in found["table"].values():
        low, high = row["gain_interval"]
        assert low <= row["gain"] <= high


def test_kinds_bytes_speed_and_text_layers_are_reported(found: dict[str, Any]) -> None:
    assert found["questions_by_kind"] == dict.fromkeys(KINDS, 10)
    assert set(found["by_kind"]) == set(KINDS)
    assert found["bytes_a_page"]["stride 1/3"] > 0
    assert found["latency"]["times_faster"]["stride 1/3, mean"] > 1
    assert found["evidence_without_text"] == {"text layer": 0, "in use": 0}


def test_run_again_it_asks_nothing_and_finds_the_same(
    drawn: Path,
    checkpoints: Path,
    found: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("ask_teacher", "ask_stored", "measure"):
        monkeypatch.delattr(real_documents, name)
    real_documents.run(options(drawn, checkpoints))
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == found


def test_a_question_lost_halfway_is_asked_again(
    drawn: Path, checkpoints: Path, found: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    [lost] = checkpoints.glob("model-*/manual-2-3.npz")
    lost.unlink()
    real_documents.run(options(drawn, checkpoints))
    assert lost.exists()
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["table"] == found["table"]


def test_checkpoints_of_other_questions_are_not_taken(drawn: Path, checkpoints: Path, tmp_path: Path) -> None:
    other = tmp_path / "queries.jsonl"
    other.write_text((drawn / "queries.jsonl").read_text().replace("When was", "In which year was"))
    with pytest.raises(DatasetError, match="no question has been asked yet"):
        real_documents.run(options(drawn, checkpoints, "--queries", str(other), "--evaluate"))


def test_kinds_take_turns_so_that_a_part_is_a_fair_part(drawn: Path) -> None:
    first = read_questions(drawn / "queries.jsonl")[:15]
    assert {question.kind for question in first} == set(KINDS)


def test_a_question_about_a_missing_document_is_named_and_left_out(
    drawn: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "documents").mkdir()
    for path in (drawn / "documents").glob("*-1.pdf"):
        (tmp_path / "documents" / path.name).write_bytes(path.read_bytes())
    given = options(drawn, tmp_path, "--documents", str(tmp_path / "documents"), "--evaluate")
    with pytest.raises(DatasetError, match="run without --evaluate"):
        real_documents.run(given)
    assert "report-2.pdf: no pages of it were found" in caplog.text


def test_a_question_nobody_judged_is_named_and_left_out(
    drawn: Path, checkpoints: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lines = (drawn / "qrels.trec").read_text().splitlines(keepends=True)
    (tmp_path / "qrels.trec").write_text("".join(lines[1:]))
    out = tmp_path / "found.json"
    given = ["--qrels", str(tmp_path / "qrels.trec"), "--evaluate", "--out", str(out)]
    real_documents.run(options(drawn, checkpoints, *given))
    assert "1 questions have no judgement, letter-1-1 first" in caplog.text
    assert json.loads(out.read_text())["questions"] == 29


def test_one_kind_of_document_teaches_nothing(drawn: Path, tmp_path: Path) -> None:
    (tmp_path / "documents").mkdir()
    for path in (drawn / "documents").glob("letter-*.pdf"):
        (tmp_path / "documents" / path.name).write_bytes(path.read_bytes())
    with pytest.raises(DatasetError, match="wanted two or more"):
        real_documents.run(options(drawn, tmp_path, "--documents", str(tmp_path / "documents")))


def test_a_line_that_is_no_question_is_shown(tmp_path: Path) -> None:
    (tmp_path / "queries.jsonl").write_text('{"query_id": "1", "text": "When?"}\n')
    with pytest.raises(DatasetError, match=r"line 1: .*wanted JSON with query_id, text, document"):
        read_questions(tmp_path / "queries.jsonl")


def test_it_runs_as_a_script_from_anywhere(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, real_documents.__file__, "--help"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "--backbone" in done.stdout
