"""`calibrate --weight-only` and `--traffic`: what was judged or searched for reaches the calibration."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from ridgerank.calibration.traffic import read_traffic
from ridgerank.errors import RidgeRankError
from ridgerank.ranking.reranker import Reranker
from ridgerank.serving.traffic_log import TrafficLog
from tests.cli.commands import invoke

WORDS = [
    "margin",
    "risk",
    "growth",
    "debt",
    "water",
    "market",
    "year",
    "cost",
    "plan",
    "team",
    "price",
    "road",
    "ship",
    "sale",
    "unit",
    "fund",
]


def copy_calibration(folder: Path, name: str) -> None:
    calibrations = folder / "store/calibrations"
    for suffix in (".safetensors", ".json"):
        (calibrations / f"{name}{suffix}").write_bytes((calibrations / f"default{suffix}").read_bytes())


def test_judgements_change_the_weight_and_no_page_is_read(
    folder: Path, reranker: Reranker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy_calibration(folder, "judged")
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
    assert report["weight"]["method"] == "closed-form"  # a random model supports nothing: judgements alone
    assert report["weight"]["weight"] > reranker.calibration.weight.weight
    assert (report["relevance"]["calibrated"], report["relevance"]["judged_queries"]) == (True, 12)
    assert "weight" in done.stderr


def log_searches(reranker: Reranker, path: Path) -> None:
    log = TrafficLog(path, retriever=reranker.retriever.name, max_bytes=1 << 20)
    for word in WORDS:
        log.record(reranker.search(f"{word} of the report", k=8, top_k=8))
    log.close()


def test_traffic_is_calibrated_on_and_old_is_shown_against_new(
    folder: Path, reranker: Reranker, tmp_path: Path
) -> None:
    copy_calibration(folder, "traffic")
    log_searches(reranker, tmp_path / "log.jsonl")
    options = ("--store", folder / "store", "--name", "traffic", "--device", "cpu", "--candidates", 8)
    done = invoke("calibrate", *options, "--traffic", tmp_path / "log.jsonl", "--json")
    report = json.loads(done.stdout)
    assert report["diagnostics"]["queries_from"] == "searched for (log.jsonl)"
    assert report["diagnostics"]["queries"] == len(WORDS)
    assert "weight" in done.stderr
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(RidgeRankError, match="no rankings of"):
        invoke("calibrate", *options, "--traffic", tmp_path / "empty.jsonl")


def test_traffic_does_not_replace_a_calibration_that_rests_on_judgements(
    folder: Path, reranker: Reranker, tmp_path: Path
) -> None:
    weight = replace(reranker.calibration.weight, method="combined", queries_used=24)
    judged = replace(reranker.calibration, weight=weight).save(folder / "store/calibrations", "trusted")
    before = judged.read_bytes()
    log_searches(reranker, tmp_path / "log.jsonl")
    options = ("--store", folder / "store", "--name", "trusted", "--device", "cpu", "--candidates", 8)
    done = invoke("calibrate", *options, "--traffic", tmp_path / "log.jsonl")
    assert "24 judged queries" in done.stderr
    assert "trusted-traffic" in done.stderr
    assert judged.read_bytes() == before
    assert judged.with_name("trusted-traffic.json").exists()


def test_a_weight_that_rests_on_judgements_not_at_hand_is_not_replaced(
    folder: Path, reranker: Reranker
) -> None:
    weight = replace(reranker.calibration.weight, method="closed-form", queries_used=100)
    saved = replace(reranker.calibration, weight=weight).save(folder / "store/calibrations", "transferred")
    before = saved.read_bytes()
    with pytest.raises(RidgeRankError, match="100 judged queries, 0 are known now; nothing was changed"):
        invoke("calibrate", "--store", folder / "store", "--name", "transferred", "--weight-only")
    assert saved.read_bytes() == before


def test_lines_of_a_log_with_scores_that_are_no_numbers_cost_those_lines_alone(
    reranker: Reranker, tmp_path: Path
) -> None:
    log_searches(reranker, tmp_path / "log.jsonl")
    lines = (tmp_path / "log.jsonl").read_text().splitlines()
    row = json.loads(lines[0])
    row["retriever_scores"][0] = float("nan")
    (tmp_path / "log.jsonl").write_text("\n".join([json.dumps(row), *lines[1:]]) + "\n")
    traffic = read_traffic(
        tmp_path / "log.jsonl",
        retriever=reranker.retriever.name,
        page_ids=reranker.store.page_ids(),
        count=100,
    )
    assert len(traffic.queries) == len(WORDS) - 1
