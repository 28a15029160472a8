"""index --calibrate, calibrate, search, rank: the commands give what the library gives, to the last digit."""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner, Result

from ridgerank.backbones.base import Backbone
from ridgerank.calibration.artifact import Calibration
from ridgerank.cli.main import app
from ridgerank.errors import QueryError, RidgeRankError, RunFileError, StoreError
from ridgerank.ranking.reranker import Reranker
from ridgerank.retrievers.bm25 import BM25
from ridgerank.store.page_store import PageStore
from ridgerank.store.sidecar import calibrations_folder
from tests.calibrated_store import random_calibration, write_report, write_reports
from tests.store_calls import count_store_calls

QUERIES = {
    f"q{n}": f"{word} of Norway" for n, word in enumerate(["margin", "risk", "growth", "debt", "water"])
}


def ridgerank(*words: object, code: int = 0) -> Result:
    result = CliRunner().invoke(app, [str(word) for word in words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, model_folder: Path) -> Path:
    """Reports, indexed and calibrated in one command."""
    folder = tmp_path_factory.mktemp("ranking")
    write_reports(folder / "docs", pages=40)
    options = ("--backbone", model_folder, "--max-pixels", 30 * 28 * 28, "--device", "cpu", "--processes", 1)
    done = ridgerank("index", folder / "docs", "--store", folder / "store", *options, "--calibrate")
    assert "40 pages added" in done.stderr
    assert "candidate pages, targets of all of them known" in done.stderr
    assert "warning: " in done.stderr  # a random model cannot be trusted, and that is said
    return folder


@pytest.fixture(scope="module")
def reranker(folder: Path, small_backbone: Backbone) -> Iterator[Reranker]:
    with Reranker.open(str(folder / "store"), backbone=small_backbone) as opened:
        yield opened


@pytest.fixture(scope="module")
def run(folder: Path, reranker: Reranker) -> dict[str, list[tuple[str, float]]]:
    """Candidates by BM25, on disk and in memory, pages by reference."""
    (folder / "q.jsonl").write_text(
        "".join(json.dumps({"query_id": key, "text": text}) + "\n" for key, text in QUERIES.items())
    )
    found = {
        key: [
            (reranker.store.reference(one.page_id), one.score) for one in reranker.retriever.search(text, 6)
        ]
        for key, text in QUERIES.items()
    }
    lines = [f"{key} Q0 {page} 1 {score!r} bm25\n" for key, own in found.items() for page, score in own]
    (folder / "run.trec").write_text("".join(lines))
    return found


def reranked(folder: Path, *more: object, code: int = 0) -> Result:
    given = ("--queries", folder / "q.jsonl", "--run", folder / "run.trec")
    return ridgerank("rank", "--store", folder / "store", *given, "--device", "cpu", *more, code=code)


def test_calibrating_again_reads_no_page_and_finds_the_same(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a page was encoded")

    monkeypatch.setattr(Backbone, "encode", refuse)
    report = json.loads((folder / "store/calibrations/default.json").read_text())
    done = ridgerank("calibrate", "--store", folder / "store", "--device", "cpu", "--json")
    assert json.loads(done.stdout) == report
    assert report["retriever"] == "bm25"
    assert report["diagnostics"]["queries_from"].startswith("made from the pages' text")
    assert {"weight", "weight_interval", "method", "c_b", "c_s", "rho", "interior"} <= set(report["weight"])
    wanted = {
        "penalties",
        "errors",
        "agreement",
        "relevance_floor",
        "expected_gain",
        "label_free",
        "warnings",
    }
    assert wanted <= set(report["diagnostics"])


def test_a_calibration_by_its_own_name_with_queries_and_a_run(folder: Path, run: object) -> None:
    lines = [f"query about {word} and market in year {n}\n" for n, word in enumerate("abcdefghijklmnopqrst")]
    (folder / "more.txt").write_text("".join(lines))
    done = ridgerank(
        "calibrate", "--store", folder / "store", "--queries", folder / "more.txt", "--name", "mine",
        "--candidates", 5, "--device", "cpu",
    )  # fmt: skip
    assert "agreement r" in done.stdout
    assert "20, from more.txt" in done.stdout
    with pytest.raises(RidgeRankError, match="5 different queries"):
        ridgerank(
            "calibrate", "--store", folder / "store", "--queries", folder / "q.jsonl", "--run",
            folder / "run.trec", "--device", "cpu",
        )  # fmt: skip


def test_search_prints_what_python_finds(folder: Path, reranker: Reranker) -> None:
    query = "margin of Norway"
    expected = reranker.search(query, top_k=3)
    done = ridgerank("search", "--store", folder / "store", query, "--top", 3, "--json", "--device", "cpu")
    found = json.loads(done.stdout)
    for page, printed in zip(expected.pages, found["pages"], strict=True):
        for name in ("page_id", "reference", "fused_score", "retriever_score", "readout_score", "rank"):
            assert printed[name] == getattr(page, name)
        assert printed["reason"] == page.reason
    assert found["weight"] == expected.weight
    table = ridgerank(
        "search", "--store", folder / "store", query, "--images", folder / "images", "--device", "cpu"
    )
    assert expected.pages[0].reference in table.stdout
    assert f"{expected.pages[0].retriever_rank} → 1" in table.stdout
    assert len(list((folder / "images").glob("*.png"))) == 5


def test_search_explains_each_page_it_finds(folder: Path, reranker: Reranker) -> None:
    query, out = "margin of Norway", folder / "why"
    done = ridgerank(
        "search", "--store", folder / "store", query, "--top", 2, "--explain", out, "--device", "cpu"
    )
    assert f"{out}: 2 pages explained" in done.stderr
    assert "page images" not in done.stderr
    for page in reranker.search(query, top_k=2).pages:
        [facts] = [
            json.loads(path.read_text())
            for path in out.glob("*.json")
            if json.loads(path.read_text())["page_id"] == page.page_id
        ]
        expected = reranker.explain(query, page.page_id)
        assert facts == json.loads(json.dumps({**asdict(expected), "rank": page.rank, "reason": page.reason}))
        name = f"{page.rank:02}-{page.reference.replace('#', '-')}"
        with Image.open(out / f"{name}.png") as drawn:
            assert drawn.height > 320  # the page rendered anew, not its thumbnail
            red, _, blue = np.asarray(drawn).astype(int).transpose(2, 0, 1)
        assert (red - blue).max() > 100  # black on white but for the heat
        assert (out / f"{name}.json").exists()


def test_rank_writes_what_python_finds(
    folder: Path, reranker: Reranker, run: dict[str, list[tuple[str, float]]]
) -> None:
    expected = "".join(
        f"{key} Q0 {page.reference} {page.rank} {page.fused_score!r} ridgerank\n"
        for key, candidates in run.items()
        for page in reranker.rank(QUERIES[key], candidates).pages
    )
    done = reranked(folder)
    assert done.stdout == expected
    assert "5 queries ranked at weight" in done.stderr
    reranked(folder, "--output", folder / "out.trec")
    assert (folder / "out.trec").read_text() == expected


def test_rank_asks_the_store_twice_per_query_however_many_candidates_there_are(
    folder: Path, run: dict[str, list[tuple[str, float]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = count_store_calls(monkeypatch)
    reranked(folder)
    assert calls.lookups == [6] * (2 * len(run))  # to rank the candidates, and to name them as the run does


@pytest.mark.parametrize("cut", [0, 1, 100, 700, 1200, -30, -1, None])
def test_rank_goes_on_where_it_stopped(folder: Path, run: object, cut: int | None) -> None:
    output = folder / "resumed.trec"
    whole = reranked(folder).stdout
    output.write_text(whole[:cut])
    done = reranked(folder, "--output", output)
    assert output.read_text() == whole
    if cut is None:
        assert "5 of 5 queries were done before" in done.stderr


def test_rank_does_not_go_on_with_what_others_made(folder: Path, run: object) -> None:
    output = folder / "other.trec"
    output.write_text("q9 Q0 report-0.pdf#1 1 0.5 other\n")
    with pytest.raises(RunFileError, match="holds another run's queries"):
        reranked(folder, "--output", output)
    with PageStore.open(str(folder / "store")) as store:
        made = random_calibration(store.lineage, 64)
    made.save(calibrations_folder(str(folder / "store")), "random")
    output.write_text(reranked(folder, "--readout", "random").stdout[:900])
    with pytest.raises(RunFileError, match="was made with another store, calibration or run"):
        reranked(folder, "--output", output)


def test_an_interrupted_rank_says_how_to_go_on(
    folder: Path, run: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = folder / "interrupted.trec"
    rank, calls = Reranker.rank, 0

    def interrupted(self: Reranker, *given: Any, **more: Any) -> Any:  # noqa: ANN401
        nonlocal calls
        calls += 1
        if calls == 3:
            raise KeyboardInterrupt
        return rank(self, *given, **more)

    monkeypatch.setattr(Reranker, "rank", interrupted)
    done = reranked(folder, "--output", output, code=130)
    assert "run it again to go on" in done.stderr
    assert len({line.split()[0] for line in output.read_text().splitlines()}) == 2
    reranked(folder, "--output", output)
    assert output.read_text() == reranked(folder).stdout


def test_missing_pages_are_named_or_encoded_on_the_fly(folder: Path, run: object, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    write_report(tmp_path / "new/new.pdf", pages=2, seed=99)
    (tmp_path / "run").write_text("q0 Q0 new.pdf#2 1 2.5 x\nq0 Q0 report-0.pdf#1 1 1.5 x\n")
    with pytest.raises(StoreError, match=r"new\.pdf#2; index them"):
        reranked(folder, "--run", tmp_path / "run")
    done = reranked(folder, "--run", tmp_path / "run", "--encode-missing", tmp_path / "new")
    assert sorted(line.split()[2] for line in done.stdout.splitlines()) == ["new.pdf#2", "report-0.pdf#1"]
    assert "4 queries have no candidates in the run; left out" in done.stderr


def test_queries_without_text_are_refused(folder: Path, run: object, tmp_path: Path) -> None:
    (tmp_path / "run").write_text("q77 Q0 report-0.pdf#1 1 1.5 x\n")
    with pytest.raises(QueryError, match="1 queries of the run have no text, 'q77' among them"):
        reranked(folder, "--run", tmp_path / "run")


def test_where_no_model_is_named_the_embedded_one_serves_and_says_so(folder: Path, tmp_path: Path) -> None:
    said = ridgerank("index", folder / "docs", "--store", tmp_path / "store")
    assert "mini-qwen serves" in said.stderr
    assert "--backbone Qwen/Qwen2.5-VL-7B-Instruct" in said.stderr
    with PageStore.open(str(tmp_path / "store")) as store:
        assert store.lineage.backbone == "mini-qwen"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("calibrate", "--run", "r"), "--run needs the queries"),
        (("calibrate", "--qrels", "q.trec"), "judgements need the queries"),
        (("calibrate", "--make", "magic"), "wanted auto, text or model"),
        (("rank", "--queries", "q", "--run", "r", "--tag", "two words"), "wanted one word"),
    ],
)
def test_options_that_do_not_fit_together_are_refused(
    folder: Path, run: object, words: tuple[str, ...], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    (folder / "q.trec").write_text("q0 0 report-0.pdf#1 1\n")
    assert reason in " ".join(ridgerank(*words, "--store", "store", code=2).output.replace("│", " ").split())


def test_an_error_is_one_line(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "ridgerank.cli.main",
        "search",
        "--store",
        str(tmp_path / "none"),
        "query",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "error: no page store" in done.stderr
    assert "Traceback" not in done.stderr
    empty = subprocess.run([*command[:-1], " "], capture_output=True, text=True, check=False)
    assert "error: an empty query" in empty.stderr


def test_the_calibration_is_of_the_store_and_its_retriever(folder: Path, reranker: Reranker) -> None:
    assert isinstance(reranker.retriever, BM25)
    found = Calibration.load(calibrations_folder(str(folder / "store")), lineage=reranker.store.lineage)
    assert found.retriever == "bm25"


@pytest.mark.parametrize(("option", "value"), [("--target", "score"), ("--state", "first")])
def test_a_reading_nobody_knows_is_refused_at_once(folder: Path, option: str, value: str) -> None:
    done = ridgerank("calibrate", "--store", folder / "store", option, value, code=2)
    assert f"'{value}', wanted auto, " in done.stderr


def test_calibrate_compares_readings_and_learns_the_one_asked_for(folder: Path) -> None:
    options = ("--store", folder / "store", "--device", "cpu", "--name", "compared")
    done = ridgerank("calibrate", *options)
    for name in ("margin, last", "margin, mean", "likelihood, last", "likelihood, mean"):
        assert name in done.stdout
    assert done.stdout.count("taken") == 1
    asked = ridgerank("calibrate", *options, "--target", "likelihood", "--state", "mean", "--json")
    facts = json.loads(asked.stdout)
    assert (facts["target"], facts["state"]) == ("likelihood", "mean")
    assert [reading["target"] for reading in facts["diagnostics"]["readings"]] == ["likelihood"]
