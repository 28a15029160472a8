"""The label-free weight that is deployed: one ratio, pulled to 1 by what is not known of it."""

import numpy as np
import pytest

from ridgerank.evaluation.simulation import World, simulate
from ridgerank.fusion.correlations import Correlations, correlate
from ridgerank.fusion.estimate import WeightEstimate, closed_form_estimate, label_free_estimate
from ridgerank.fusion.ratio_estimate import (
    LogRatio,
    estimate_by_ratio,
    measure_log_ratio,
    split_product,
    weigh_log_ratio,
)
from ridgerank.fusion.weight import optimal_weight


def three_scores(
    world: World, queries: int, seed: int, *, copied: float = 0.0
) -> tuple[Correlations, Correlations]:
    """Correlations with the teacher, and with relevance, of a reranker that copies some of its teacher."""
    drawn = simulate(world, queries=queries, seed=seed)
    reranker = drawn.reranker + copied * drawn.teacher
    return (
        correlate(drawn.retriever, reranker, drawn.teacher, drawn.lists),
        correlate(drawn.retriever, reranker, drawn.grades, drawn.lists),
    )


def estimates(
    world: World, queries: int, seed: int, *, copied: float = 0.0
) -> tuple[WeightEstimate, WeightEstimate]:
    """Deployed, and §B.6."""
    unlabelled, _ = three_scores(world, queries, seed, copied=copied)
    paper = label_free_estimate(unlabelled)
    return estimate_by_ratio(unlabelled, paper), paper


def test_the_weight_depends_on_the_ratio_and_rho_alone() -> None:
    for c_b, c_s, rho in ((0.5, 0.6, 0.3), (0.25, 0.3, 0.3), (0.3, 0.2, 0.1)):
        r = c_s / c_b
        expected = (r - rho) / ((1 + r) * (1 - rho))
        assert float(optimal_weight(*map(np.asarray, (c_b, c_s, rho)))) == pytest.approx(expected)
        assert float(optimal_weight(*map(np.asarray, (1.0, r, rho)))) == pytest.approx(expected)


@pytest.mark.parametrize("rho", [0.1, 0.4, 0.8])
def test_equally_good_scores_share_equally_whatever_their_correlation(rho: float) -> None:
    same = Correlations(np.full(9, 0.4), np.full(9, 0.4), np.full(9, rho), 0, 0, 0)
    assert weigh_log_ratio(0.0, 0.3, same)[0] == pytest.approx(0.5)


def test_what_is_uncertain_is_pulled_to_equal_weights() -> None:
    sure, unsure = (LogRatio(0.6, error, 0.26) for error in (0.01, 1.0))
    assert 0.0 < unsure.mean < sure.mean < 0.6
    assert sure.error < unsure.error < 0.4


def test_the_product_and_the_ratio_give_both_correlations_back() -> None:
    c_b, c_s = split_product(0.3, 0.5)
    assert c_b * c_s == pytest.approx(0.3)
    assert np.log(c_s / c_b) == pytest.approx(0.5)
    assert max(split_product(0.8, 1.0)) == 1.0


def test_no_chance_of_gain_is_certain_where_the_papers_is() -> None:
    deployed, paper = estimates(World(0.4, 0.7, 0.8), 400, 1)
    assert paper.chance_of_gain == 1.0
    assert 0.9 < deployed.chance_of_gain < 1.0
    assert deployed.note.startswith("an estimate without judgements")


def test_the_interval_holds_the_judged_weight_where_the_papers_does_not() -> None:
    """Rerankers that copy some of their teacher: the one-factor model does not hold."""
    held = {"deployed": 0, "paper": 0}
    cases = [(World(0.45, c_s, 0.6), copied) for c_s in (0.4, 0.6) for copied in (0.3, 0.6)]
    for world, copied in cases:
        truth = closed_form_estimate(three_scores(world, 3000, 99, copied=copied)[1]).weight
        for seed in range(10):
            for name, each in zip(held, estimates(world, 80, seed, copied=copied), strict=True):
                held[name] += each.weight_interval[0] <= truth <= each.weight_interval[1]
    assert held["deployed"] >= 0.9 * 10 * len(cases)
    assert held["paper"] <= 0.6 * 10 * len(cases)


def test_readings_that_disagree_about_the_retriever_widen_the_interval() -> None:
    unlabelled, _ = three_scores(World(0.45, 0.6, 0.7), 200, 3)
    paper = label_free_estimate(unlabelled)
    agree, differ = (estimate_by_ratio(unlabelled, paper, (paper.c_b * factor,)) for factor in (1.0, 0.6))
    widths = [each.weight_interval[1] - each.weight_interval[0] for each in (agree, differ)]
    assert widths[0] < widths[1]
    assert abs(differ.weight - 0.5) < abs(agree.weight - 0.5)


def test_the_reading_that_shows_the_retriever_best_sets_the_ratio() -> None:
    unlabelled, _ = three_scores(World(0.45, 0.6, 0.7), 200, 3)
    rho = float(unlabelled.mutual.mean())
    assert measure_log_ratio(unlabelled, 0.4, (0.5, 0.3)).estimate == pytest.approx(np.log(rho / 0.25))
