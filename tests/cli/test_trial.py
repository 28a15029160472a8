"""`ridgerank trial`."""

import json
from pathlib import Path
from typing import Any

import pytest

from ridgerank.backbones.load import load_backbone
from ridgerank.calibration.readout_file import ReadoutFile
from ridgerank.cli import trial
from ridgerank.cli.trial import find_moves
from ridgerank.errors import ScoreError
from ridgerank.indexing.index import index_documents
from ridgerank.records import Page, Query
from ridgerank.store.lance_dataset import find_lineage
from ridgerank.store.page_store import PageStore
from tests.backbones.small_text_models import build_text
from tests.calibrated_store import random_calibration, write_reports
from tests.cli.commands import invoke
from tests.conftest import write_pdf


class PretendRecognizer:
    """Reads the name of a page on it."""

    def __init__(self, *, cache: Path) -> None:
        self._cache = cache

    def read(self, page: Page) -> str:
        return f"Recognized words of the page {page.reference}"


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Any]]:
    """A folder with a model, documents and the store of a trial on made questions, and what it printed."""
    folder = tmp_path_factory.mktemp("trial")
    build_text("qwen2", folder / "model")
    write_reports(folder / "docs", pages=90)
    write_pdf(folder / "docs/scan.pdf", pages=20)
    words = ("--store", folder / "store", "--backbone", folder / "model", "--device", "cpu", "--json")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ridgerank.documents.ocr.Recognizer", PretendRecognizer)
        done = invoke("trial", folder / "docs", *words, "--minutes", 60)
    return folder, [json.loads(done.stdout), *words]


def test_made_questions_are_never_plainly_worth_it_and_the_whole_corpus_is_searched(
    tried: tuple[Path, list[Any]],
) -> None:
    folder, [report, *_] = tried
    assert report["verdict"]["outcome"] != "worth it"
    assert report["pool"].startswith("110 pages searched")
    assert report["verdict"]["questions"] >= 16
    [change] = report["changes"]
    assert change["name"] == "bm25"
    assert set(change["before"]) == {"nDCG@5", "R@5", "R@20"}
    assert change["before"]["R@20"] == change["after"]["R@20"]
    with PageStore.open(folder / "store") as store:
        pending = store.pending()
        assert len(store) == 110
        read = [text for text in store.texts().values() if text.startswith("Recognized words")]
    assert f", {len(read)} read by OCR, {20 - len(read)} without text, which are not found" in report["pool"]
    pages = f"({90 + len(read)} of 110 pages have text, some by OCR)."
    assert report["verdict"]["sentence"].endswith(pages)
    assert 1 <= min(report["known_item_rank"]) <= max(report["known_item_rank"]) <= 20
    assert index_documents(folder / "docs", folder / "store", processes=0).added == len(pending)


def test_judged_questions_weigh_every_retriever_and_documents_are_resampled(
    tried: tuple[Path, list[Any]],
) -> None:
    folder, [_, *words] = tried
    rows, qrels, run = [], [], []
    for number in range(40):
        page = f"report-{number % 9}.pdf#{number % 10 + 1}"
        rows.append(json.dumps({"query_id": f"q{number}", "text": f"revenue of the report {number}"}))
        qrels.append(f"q{number} 0 {page} 1")
        run += [f"q{number} Q0 report-{number % 9}.pdf#{each + 1} 1 {each} mine" for each in range(10)]
    for name, lines in {"q.jsonl": rows, "qrels.trec": qrels, "run.trec": run}.items():
        (folder / name).write_text("\n".join(lines) + "\n")
    files = (
        "--questions",
        folder / "q.jsonl",
        "--qrels",
        folder / "qrels.trec",
        "--run",
        folder / "run.trec",
    )
    report = json.loads(invoke("trial", *words, *files).stdout)
    assert [change["name"] for change in report["changes"]] == ["bm25", "run"]
    assert report["verdict"]["questions"] == 40
    assert report["verdict"]["documents"] == 9
    assert report["changes"][1]["before"]["R@20"] == 100.0
    (folder / "docs").rename(folder / "gone")  # the verdict needs no documents, only what full passes take
    shown = invoke("trial", *words[:-1], *files)
    (folder / "gone").rename(folder / "docs")
    assert "by full passes" not in shown.stdout
    assert shown.stdout.rstrip().endswith(report["verdict"]["sentence"])


def test_a_shipped_readout_is_compared_with_the_full_model(
    tried: tuple[Path, list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, [_, *words] = tried
    lineage, model = find_lineage(str(folder / "store")), load_backbone(folder / "model", device="cpu")
    assert lineage is not None
    file = ReadoutFile.of(random_calibration(lineage, model.geometry.width), model)
    file.save(folder / "tiny.ridge")
    shipped = {"tiny": folder / "tiny.ridge"}
    monkeypatch.setattr("ridgerank.calibration.readout_file.shipped_readouts", lambda: shipped)
    monkeypatch.setattr(trial, "FULL_QUESTIONS", 2)
    report = json.loads(invoke("trial", *words, "--minutes", 60).stdout)
    assert report["readout"] == "shipped (tiny)"
    assert -1 <= report["agreement"] <= 1
    assert report["full_ms"] > 0


def test_a_model_too_slow_for_the_time_is_refused_before_anything_is_stored(
    tried: tuple[Path, list[Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = tried
    monkeypatch.setattr(trial, "measure_pages", lambda *_: (1e6, 60.0, "measured"))
    words = ("--store", tmp_path / "store", "--backbone", folder / "model")
    with pytest.raises(ScoreError, match=r"60\.0 s a page\), expected at most 10 min; give --minutes \d+"):
        invoke("trial", folder / "docs", *words)
    assert not (tmp_path / "store").exists()


def test_the_pages_that_moved_most_are_shown_with_the_line_that_matches() -> None:
    queries = [Query(f"q{number}", "total revenue of Norway") for number in range(2)]
    far, near = ({"a#1": -1.0, "a#2": -9.0}, {"a#1": -9.0, "a#2": -1.0}), ({"a#1": -1.0}, {"a#1": -2.0})
    texts = {"a#1": "", "a#2": "Contents\nThe revenue  of Norway was 3\nNorway"}
    moves = find_moves(dict(zip(queries, (near, far), strict=True)), {"q1": {"a#2": 1}}, texts)
    assert [(move["page"], move["before"], move["after"]) for move in moves] == [("a#2", 9, 1), ("a#1", 1, 2)]
    assert moves[0]["line"] == "The revenue of Norway was 3"
