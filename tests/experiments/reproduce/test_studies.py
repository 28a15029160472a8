"""The parts of a run: stages go on, statistics say what they should, tables are written."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from experiments.baselines.gqr import GRID as REFINEMENTS
from experiments.protocols import GRID, WeightSweep
from experiments.reproduce.method_results import (
    choose_refinements,
    compare_differences,
    interval_95,
    measure_latency,
)
from experiments.reproduce.stages.checkpoint import Arrays, compute_in_parts, is_complete, require_lineage
from experiments.reproduce.studies.weight_rules import Subset, split_half
from experiments.reproduce.tables.table import Column, Row, Table, text_columns
from ridgerank.errors import LineageMismatch
from ridgerank.evaluation.metrics import MEASURES
from ridgerank.fusion.correlations import Correlations
from ridgerank.fusion.weight import optimal_weight
from ridgerank.ragged import Floats
from tests.store.pages import LINEAGE


def test_the_difference_is_the_mean_over_corpora_not_over_queries() -> None:
    comparison = compare_differences([np.array([10.0, 10.0, 10.0, 10.0]), np.array([0.0, 2.0])], seed=0)
    assert comparison.difference == pytest.approx((10.0 + 1.0) / 2)
    assert comparison.queries == 6


def test_the_interval_of_a_clear_gain_is_above_zero() -> None:
    chance = np.random.default_rng(0)
    comparison = compare_differences(
        [chance.normal(3.0, 4.0, size=80), chance.normal(3.0, 4.0, size=60)], seed=0
    )
    assert 0 < comparison.low < comparison.difference < comparison.high


def subset(c_b: Floats, c_s: Floats, rho: Floats, quality: Floats) -> Subset:
    correlations = Correlations(c_b, c_s, rho, 0)
    speaking = np.ones(len(c_b), dtype=np.bool_)
    return Subset(0, "one", "retriever", "arm", (correlations,), (speaking,), (WeightSweep(GRID, quality),))


def peaked(weight: float, queries: int) -> Floats:
    """Quality that is highest at one weight, for every query alike."""
    return np.repeat(90.0 - 100.0 * (GRID - weight)[:, None] ** 2, queries, axis=1)


def test_the_predicted_weight_is_read_from_mean_correlations() -> None:
    c_b, c_s, rho = np.array([0.2, 0.4]), np.array([0.5, 0.7]), np.array([0.1, 0.3])
    of_readout = subset(c_b, c_s, rho, peaked(0.8, 2))
    assert of_readout.predicted == pytest.approx(
        float(optimal_weight(np.array(0.3), np.array(0.6), np.array(0.2)))
    )
    assert of_readout.least_partial == pytest.approx(min(0.3 - 0.2 * 0.6, 0.6 - 0.2 * 0.3))


def test_halves_that_agree_are_perfectly_reliable_and_halves_of_noise_are_not() -> None:
    chance = np.random.default_rng(0)
    steady, noisy = [], []
    for weight in np.linspace(0.3, 0.9, 12):
        c_s = np.full(40, weight)
        steady.append(subset(np.full(40, 0.3), c_s, np.full(40, 0.1), peaked(float(weight), 40)))
        loud = chance.uniform(0.1, 0.9, size=(3, 40))
        noisy.append(subset(loud[0], loud[1], 0.1 * loud[2], chance.uniform(0, 100, size=(21, 40))))
    assert split_half(tuple(steady), 5, 0) == pytest.approx((1.0, 1.0))
    predicted, measured = split_half(tuple(noisy), 20, 0)
    assert predicted < 0.6
    assert measured < 0.6


TABLE = Table(
    "table0",
    "Table 0. A title",
    "50 % of a caption.",
    (*text_columns("arm", "kind"), Column("nDCG@5"), Column("Δ", "+.2f")),
    (
        Row(("ours", "a|b", 71.234, 1.5)),
        Row(("theirs", "x_y", 70.0, None), source="paper, A100"),
        Row(("missing", "z", None, math.nan), note="no GPU here"),
    ),
    ("a note",),
)


def test_markdown_has_every_row_and_says_where_figures_are_from() -> None:
    lines = TABLE.to_markdown().splitlines()
    assert r"| ours | a\|b | 71.2 | +1.50 |" in lines
    assert "| *theirs* | *x_y (paper, A100)* | *70.0* | *–* |" in lines
    assert "| missing | z not run: no GPU here | – | – |" in lines
    assert lines[-1] == "- a note"


def test_json_keeps_the_figures_unrounded() -> None:
    content = json.loads(TABLE.to_json())
    assert content["columns"] == ["arm", "kind", "nDCG@5", "Δ"]
    assert content["rows"][0] == {"source": "this run", "cells": ["ours", "a|b", 71.234, 1.5]}
    assert content["rows"][1]["source"] == "paper, A100"
    assert content["rows"][2] == {
        "source": "this run", "note": "no GPU here", "cells": ["missing", "z", None, None],
    }  # fmt: skip


class KilledError(Exception):
    """A kill."""


def test_a_killed_stage_goes_on_with_the_part_it_was_at(tmp_path: Path) -> None:
    computed: list[range] = []

    def make(items: range, *, until: int) -> Arrays:
        if items.start >= until:
            raise KilledError
        computed.append(items)
        return {"squares": np.array([item**2 for item in items])}

    with pytest.raises(KilledError):
        compute_in_parts(tmp_path, 10, 4, lambda items: make(items, until=8))
    assert not is_complete(tmp_path, 10, 4)
    arrays = compute_in_parts(tmp_path, 10, 4, lambda items: make(items, until=99))
    assert arrays["squares"].tolist() == [item**2 for item in range(10)]
    assert computed == [range(4), range(4, 8), range(8, 10)]
    assert is_complete(tmp_path, 10, 4)


def test_a_folder_of_another_model_is_refused(tmp_path: Path) -> None:
    require_lineage(tmp_path, LINEAGE)
    require_lineage(tmp_path, LINEAGE)
    with pytest.raises(LineageMismatch, match="another --work"):
        require_lineage(tmp_path, replace(LINEAGE, weights="427a"))


def test_a_query_that_was_not_timed_does_not_count() -> None:
    latency = measure_latency(np.array([2.0, 4.0]), np.array([100.0, np.nan]), np.array([10.0, 30.0]))
    assert (latency.retrieval_ms, latency.reading_ms, latency.compute_ms) == (3.0, 10.0, 100.0)
    assert latency.total_ms == 113.0
    assert latency.samples_ms.tolist() == [112.0]


def test_the_interval_of_a_mean_is_that_of_its_standard_error() -> None:
    times = np.random.default_rng(0).normal(100.0, 10.0, size=400)
    latency = measure_latency(np.zeros(400), times)
    low, high = interval_95(latency.redraw(seed=0))
    assert low < latency.total_ms < high
    assert (high - low) / 2 == pytest.approx(1.96 * times.std() / 20, rel=0.1)


def best_at(*settings: int) -> Floats:
    """(settings, measures, queries): nDCG@5 is highest at the settings given, other measures elsewhere."""
    values = np.zeros((len(REFINEMENTS), len(MEASURES), 4))
    values[list(settings), MEASURES.index("nDCG@5")] = 50.0
    values[0, MEASURES.index("R@10")] = 90.0
    return values


def test_a_corpus_is_ranked_with_the_setting_that_is_best_on_the_next_one() -> None:
    assert choose_refinements([best_at(3), best_at(7), best_at(11)]) == [7, 11, 3]
