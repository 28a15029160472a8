"""`ridgerank rank` writes what Python finds, to the last digit, and goes on after an interruption."""

from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from ridgerank.errors import QueryError, RunFileError
from ridgerank.reranker.reranker import Reranker
from ridgerank.store.page_store import PageStore
from ridgerank.store.sidecar import calibrations_folder
from ridgerank.trec import read_run
from tests.calibrated_store import random_calibration, random_target_readout
from tests.cli.commands import invoke
from tests.cli.conftest import QUERIES


def reranked(folder: Path, *more: object, code: int = 0) -> Result:
    inputs = ("--queries", folder / "q.jsonl", "--run", folder / "run.trec")
    return invoke("rank", "--store", folder / "store", *inputs, "--device", "cpu", *more, code=code)


def test_rank_writes_what_python_finds(folder: Path, reranker: Reranker, run: object) -> None:
    expected = "".join(
        f"{key} Q0 {page.reference} {page.rank} {page.fused_score!r} ridgerank\n"
        for key, candidates in read_run(folder / "run.trec").to_dict().items()
        for page in reranker.rank(QUERIES[key], candidates).pages
    )
    done = reranked(folder)
    assert done.stdout == expected
    assert "5 queries ranked at weight" in done.stderr
    done = reranked(folder, "--output", folder / "new/out.trec")
    assert f"{folder / 'new'}: a new folder" in done.stderr
    assert (folder / "new/out.trec").read_text() == expected


@pytest.mark.parametrize("cut", [0, 100, 1200, -1, None])
def test_rank_goes_on_where_it_stopped(folder: Path, run: object, cut: int | None) -> None:
    output = folder / "resumed.trec"
    whole = reranked(folder).stdout
    output.write_text(whole[:cut])
    done = reranked(folder, "--output", output)
    assert output.read_text() == whole
    if cut is None:
        assert "5 of 5 queries were done before" in done.stderr


@pytest.mark.parametrize("cut", [150, None])
def test_rank_with_a_min_score_goes_on_past_queries_without_pages(
    folder: Path, run: dict[str, list[tuple[str, float]]], reranker: Reranker, cut: int | None
) -> None:
    predictor = random_target_readout(reranker.backbone.geometry.width)
    replace(reranker.calibration, target_readout=predictor).save(
        calibrations_folder(str(folder / "store")), "judged"
    )
    with Reranker.open(folder / "store", readout="judged", backbone=reranker.backbone) as opened:
        rankings = {key: opened.rank(QUERIES[key], pages).pages for key, pages in run.items()}
    best = {key: pages[0].relevance_score for key, pages in rankings.items()}
    least = sorted(best.values())[2]  # two of five queries have no such page
    options = ("--readout", "judged", "--min-score", least)
    whole = reranked(folder, *options).stdout
    assert {line.split()[0] for line in whole.splitlines()} == {
        key for key, score in best.items() if score >= least
    }
    output = folder / "high.trec"
    output.write_text(whole[:cut])
    reranked(folder, *options, "--output", output)
    assert output.read_text() == whole


def test_rank_does_not_go_on_with_what_others_made(folder: Path, run: object) -> None:
    output = folder / "other.trec"
    output.write_text("q9 Q0 report-0.pdf#1 1 0.5 other\n")
    with pytest.raises(RunFileError, match="holds another run's queries"):
        reranked(folder, "--output", output)
    with PageStore.open(str(folder / "store")) as store:
        calibration = random_calibration(store.lineage, 64)
    calibration.save(calibrations_folder(str(folder / "store")), "random")
    output.write_text(reranked(folder, "--readout", "random").stdout[:900])
    with pytest.raises(RunFileError, match="was made with another store, calibration or run"):
        reranked(folder, "--output", output)


@pytest.mark.parametrize(
    "content", [b"my notes", b"my notes\n", b"\n", b"\xff\xfe\x00", b"q0 Q0 my notes", b"q0 notes\n"]
)
def test_rank_leaves_a_file_that_is_no_run_as_it_is(folder: Path, run: object, content: bytes) -> None:
    output = folder / "notes"
    output.write_bytes(content)
    with pytest.raises(RunFileError, match="name another file"):
        reranked(folder, "--output", output)
    assert output.read_bytes() == content


def test_an_interrupted_rank_says_how_to_go_on(
    folder: Path, run: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = folder / "interrupted.trec"
    rank, calls = Reranker.rank, count(1)

    def interrupted(self: Reranker, *arguments: Any, **more: Any) -> Any:  # noqa: ANN401
        if next(calls) == 3:
            raise KeyboardInterrupt
        return rank(self, *arguments, **more)

    monkeypatch.setattr(Reranker, "rank", interrupted)
    done = reranked(folder, "--output", output, code=130)
    assert "run it again to go on" in done.stderr
    assert len({line.split()[0] for line in output.read_text().splitlines()}) == 2
    reranked(folder, "--output", output)
    assert output.read_text() == reranked(folder).stdout


def test_what_is_missing_is_named_and_stands_last(folder: Path, run: object, tmp_path: Path) -> None:
    (tmp_path / "run").write_text("q0 Q0 new.pdf#2 1 2.5 x\nq0 Q0 report-0.pdf#1 1 1.5 x\n")
    done = reranked(folder, "--run", tmp_path / "run")
    assert [line.split()[2] for line in done.stdout.splitlines()] == ["report-0.pdf#1", "new.pdf#2"]
    assert "documents[0]: 'new.pdf#2' names no page of the store" in done.stderr
    assert "4 queries have no candidates in the run; left out" in done.stderr
    (tmp_path / "unknown").write_text("q77 Q0 report-0.pdf#1 1 1.5 x\n")
    with pytest.raises(QueryError, match="1 queries of the run have no text, 'q77' among them"):
        reranked(folder, "--run", tmp_path / "unknown")
