"""`calibrate --weight-only`: what was judged reaches the calibration."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from ridgerank.errors import RidgeRankError
from ridgerank.reranker.reranker import Reranker
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
    assert "weight" in done.stderr


def test_a_weight_that_rests_on_judgements_not_at_hand_is_not_replaced(
    folder: Path, reranker: Reranker
) -> None:
    weight = replace(reranker.calibration.weight, method="closed-form", queries_used=100)
    saved = replace(reranker.calibration, weight=weight).save(folder / "store/calibrations", "transferred")
    before = saved.read_bytes()
    with pytest.raises(RidgeRankError, match="100 judged queries, 0 are known now; nothing was changed"):
        invoke("calibrate", "--store", folder / "store", "--name", "transferred", "--weight-only")
    assert saved.read_bytes() == before
