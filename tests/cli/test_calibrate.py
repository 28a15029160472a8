"""`ridgerank calibrate`, and `index --calibrate`: the commands give what the library gives."""

import json
import subprocess
from pathlib import Path

import pytest

from ridgerank.backbones.base import Backbone
from ridgerank.calibration.artifact import Calibration
from ridgerank.errors import RidgeRankError
from ridgerank.reranker.reranker import Reranker
from ridgerank.retrievers.bm25 import BM25
from ridgerank.store.sidecar import calibrations_folder
from tests.cli.commands import RUN, invoke


def test_calibrating_again_reads_no_page_and_finds_the_same(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a page was encoded")

    monkeypatch.setattr(Backbone, "encode", refuse)
    report = json.loads((folder / "store/calibrations/default.json").read_text())
    done = invoke("calibrate", "--store", folder / "store", "--device", "cpu", "--json")
    assert json.loads(done.stdout) == report
    assert report["retriever"] == "bm25"
    assert report["diagnostics"]["queries_from"].startswith("made from the pages' text")
    assert {"weight", "weight_interval", "method", "c_b", "c_s", "rho", "interior"} <= set(report["weight"])
    expected = {
        "penalties",
        "errors",
        "agreement",
        "relevance_floor",
        "expected_gain",
        "label_free",
        "warnings",
    }
    assert expected <= set(report["diagnostics"])


def test_a_calibration_by_its_own_name_with_queries_and_a_run(folder: Path, run: object) -> None:
    lines = [f"query about {word} and market in year {n}\n" for n, word in enumerate("abcdefghijklmnopqrst")]
    (folder / "more.txt").write_text("".join(lines))
    done = invoke(
        "calibrate", "--store", folder / "store", "--queries", folder / "more.txt", "--name", "mine",
        "--candidates", 5, "--device", "cpu",
    )  # fmt: skip
    assert "agreement r" in done.stdout
    assert "20, from more.txt" in done.stdout
    with pytest.raises(RidgeRankError, match="5 different queries"):
        invoke(
            "calibrate", "--store", folder / "store", "--queries", folder / "q.jsonl", "--run",
            folder / "run.trec", "--device", "cpu",
        )  # fmt: skip


def test_a_disk_that_takes_no_more_is_one_line_and_the_calibration_stays(folder: Path) -> None:
    """The shell's limit on the size of files stands in for the end of a disk."""
    before = (folder / "store/calibrations/default.json").read_bytes()
    command = [*RUN, "calibrate", "--store", str(folder / "store"), "--device", "cpu"]
    limited = ["bash", "-c", 'ulimit -f 1; exec "$@"', "-", *command]
    done = subprocess.run(limited, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert "default.json cannot be written: File too large" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
    assert (folder / "store/calibrations/default.json").read_bytes() == before


def test_the_calibration_is_of_the_store_and_its_retriever(folder: Path, reranker: Reranker) -> None:
    assert isinstance(reranker.retriever, BM25)
    calibration = Calibration.load(calibrations_folder(str(folder / "store")), lineage=reranker.store.lineage)
    assert calibration.retriever == "bm25"


@pytest.mark.parametrize(("option", "value"), [("--target", "score"), ("--state", "first")])
def test_a_reading_nobody_knows_is_refused_at_once(folder: Path, option: str, value: str) -> None:
    done = invoke("calibrate", "--store", folder / "store", option, value, code=2)
    assert f"'{value}', wanted auto, " in done.stderr


def test_calibrate_compares_readings_and_learns_the_one_asked_for(folder: Path) -> None:
    options = ("--store", folder / "store", "--device", "cpu", "--name", "compared")
    done = invoke("calibrate", *options)
    for name in ("margin, last", "margin, mean", "likelihood, last", "likelihood, mean"):
        assert name in done.stdout
    assert done.stdout.count("taken") == 1
    chosen = invoke("calibrate", *options, "--target", "likelihood", "--state", "mean", "--json")
    facts = json.loads(chosen.stdout)
    assert (facts["target"], facts["state"]) == ("likelihood", "mean")
    assert [reading["target"] for reading in facts["diagnostics"]["options"]] == ["likelihood"]
