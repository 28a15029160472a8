"""`ridgerank calibrate`, and `index --calibrate`: the commands give what the library gives."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from ridgerank.backbones.base import Backbone
from ridgerank.cli.calibrate import _read_texts
from ridgerank.errors import QueryError, RidgeRankError
from ridgerank.reranker.reranker import Reranker
from ridgerank.store.page_store import PageStore
from tests.cli.commands import invoke


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
    assert report["diagnostics"]["queries_from"].startswith("cut from the pages' text")
    assert {"weight", "weight_interval", "method", "c_b", "c_s", "rho", "interior"} <= set(report["weight"])
    expected = "penalties errors agreement incumbent options teacher"
    assert set(expected.split()) <= set(report["diagnostics"])


def test_a_calibration_by_its_own_name_with_queries_and_a_run(folder: Path, run: object) -> None:
    lines = [f"query about {word} and market in year {n}\n" for n, word in enumerate("abcdefghijklmnopqrst")]
    (folder / "more.txt").write_text("".join(lines))
    done = invoke(
        "calibrate", "--store", folder / "store", "--queries", folder / "more.txt", "--name", "mine",
        "--candidates", 5, "--device", "cpu",
    )  # fmt: skip
    assert done.stdout.startswith("The model counts ")
    assert "agreement r" in done.stdout
    assert "20, from more.txt" in done.stdout
    with pytest.raises(RidgeRankError, match="5 different queries"):
        invoke(
            "calibrate", "--store", folder / "store", "--queries", folder / "q.jsonl", "--run",
            folder / "run.trec", "--device", "cpu",
        )  # fmt: skip


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


def test_texts_are_those_of_pages_cut_or_the_lines_of_a_file(folder: Path, tmp_path: Path) -> None:
    with PageStore.open(str(folder / "store")) as store:
        cut = _read_texts("40", store)
        assert {
            "".join(cut[name] for name in cut if name.startswith(f"{page}@"))
            for page in store.references(store.page_ids())
        } == set(store.texts().values())
        lines = tmp_path / "texts.jsonl"
        lines.write_text('{"text": "one\\ntwo"}\n\n{"text": "three"}\n')
        assert list(_read_texts(str(lines), store).values()) == ["one\ntwo", "three"]
        lines.write_text("plain\n")
        with pytest.raises(QueryError, match="expected lines of JSON, each with a `text`"):
            _read_texts(str(lines), store)


def test_judgements_change_the_weight_and_no_page_is_read(
    folder: Path, reranker: Reranker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reranker.calibration.save(folder / "store/calibrations", "judged")
    lists = reranker.calibration.lists
    assert lists is not None
    judged = list(lists.by_query().items())[:12]
    queries = [{"query_id": f"j{number}", "text": text} for number, (text, _) in enumerate(judged)]
    (tmp_path / "q.jsonl").write_text("".join(f"{json.dumps(query)}\n" for query in queries))
    best = [pages.page_ids[pages.readout.index(max(pages.readout))] for _, pages in judged]
    (tmp_path / "qrels.trec").write_text(
        "".join(f"j{number} 0 {page} 1\n" for number, page in enumerate(best))
    )
    monkeypatch.setattr("ridgerank.backbones.model_settings.ModelSettings.load", None)  # no model is needed
    done = invoke(
        "calibrate", "--store", folder / "store", "--name", "judged", "--weight-only", "--json",
        "--queries", tmp_path / "q.jsonl", "--qrels", tmp_path / "qrels.trec",
    )  # fmt: skip
    report = json.loads(done.stdout)
    assert report["weight"]["method"] == "closed-form"
    assert report["weight"]["weight"] > reranker.calibration.weight.weight
    assert re.search(r"weight \d\.\d+ before \(.*\), \d\.\d+ now \(closed-form\)", done.stderr)


def test_a_weight_that_rests_on_judgements_not_at_hand_is_not_replaced(
    folder: Path, reranker: Reranker, tmp_path: Path
) -> None:
    weight = replace(reranker.calibration.weight, method="closed-form", queries_used=100)
    lists = reranker.calibration.lists
    assert lists is not None
    saved = replace(reranker.calibration, weight=weight, lists=replace(lists, relevance=None)).save(
        folder / "store/calibrations", "transferred"
    )
    before = saved.read_bytes()
    text, pages = next(iter(lists.by_query().items()))
    (tmp_path / "q.jsonl").write_text(json.dumps({"query_id": "j", "text": text}))
    (tmp_path / "qrels.trec").write_text(f"j 0 {pages.page_ids[0]} 1\n")
    options = ("calibrate", "--store", folder / "store", "--name", "transferred", "--weight-only")
    with pytest.raises(RidgeRankError, match="100 judged queries, 1 are known now; nothing was changed"):
        invoke(*options, "--queries", tmp_path / "q.jsonl", "--qrels", tmp_path / "qrels.trec")
    assert saved.read_bytes() == before
