"""What docs/scores.md says of probabilities is what was measured."""

import re
from pathlib import Path

from benchmarks.abstention_tables import (
    ANY,
    FULLY,
    JUDGED,
    NONE,
    REFILLED,
    REPORTED,
    SCORES,
    select_rows,
)
from benchmarks.markdown_tables import read_result
from ridgerank.calibration.relevance_fit import LEAST_JUDGED
from ridgerank.shipped_models import BACKBONES

TEXT = re.sub(r"\s+", " ", (Path(__file__).parents[2] / "docs" / "scores.md").read_text(encoding="utf-8"))
MARGIN, READOUT = SCORES


def test_probabilities_fitted_on_other_corpora_keep_to_the_bars() -> None:
    for row in select_rows(corpora=REPORTED, fitted_to=JUDGED, answering=ANY):
        assert row["ece"] < 0.05
        assert row["auroc"] > 0.9
    assert "calibration errors are below 0.05 over all corpora together" in TEXT
    assert "an AUROC above 0.9" in TEXT


def test_where_partly_relevant_pages_are_left_one_readout_misses_its_bar_and_the_docs_say_so() -> None:
    missed = {MARGIN: 0.9, READOUT: 0.85}
    below = {
        (row["backbone"], row["score"])
        for row in select_rows(corpora=REPORTED, fitted_to=JUDGED, answering=FULLY)
        if row["auroc"] < missed[row["score"]]
    }
    assert below == {("mini-glm", READOUT)}
    assert "the readout of `mini-glm` tells less: its AUROC is below 0.85" in TEXT


def test_without_judgements_probabilities_are_off_by_what_the_docs_say() -> None:
    errors = [row["ece"] for row in select_rows(corpora=REPORTED, fitted_to=NONE, answering=ANY)]
    assert f"the probabilities are off by {min(errors):.2f} to {max(errors):.2f}" in TEXT


def test_the_readout_tells_better_than_the_margin_where_no_relevant_page_is_left() -> None:
    for row in select_rows(corpora=REPORTED, fitted_to=JUDGED, answering=ANY, score=READOUT):
        same = {name: row[name] for name in ("backbone", "retriever", "corpora", "fitted_to", "answering")}
        [margin] = select_rows(**same, score=MARGIN)
        assert row["auroc"] > margin["auroc"]


def test_eight_judged_queries_are_where_a_page_gains_and_four_are_not() -> None:
    by_size = {(row["backbone"], row["judged_queries"]): row for row in read_result("abstention_few")["rows"]}
    for backbone in BACKBONES:
        none, four, eight, more = (by_size[backbone, size] for size in (0, 4, LEAST_JUDGED, 32))
        assert eight["ece"] < none["ece"]
        assert eight["ece_answered"] > none["ece_answered"]
        assert more["ece_answered"] < none["ece_answered"]
        assert four["ece_answered"] > none["ece_answered"]
        assert four["ece"] > none["ece"] - 0.005
    assert "With eight, a page's probability is better than the model's own opinion on average" in TEXT


def test_asking_for_the_answer_too_empties_more_lists_without_one_and_few_with_one() -> None:
    for row in select_rows(corpora=REPORTED, fitted_to=JUDGED, answering=ANY, score=READOUT):
        assert row["empty_unanswered"] > row["empty_unanswered_by_pages_alone"] + 0.05
        assert row["empty_answered"] < 0.03


def test_a_shorter_list_does_not_flatter() -> None:
    rows = select_rows(fitted_to=REFILLED)
    assert len(rows) == 4
    for row in rows:
        same = {name: row[name] for name in ("backbone", "retriever", "score", "corpora", "answering")}
        [shorter] = select_rows(**same, fitted_to=JUDGED)
        assert shorter["auroc"] < row["auroc"] + 0.005
