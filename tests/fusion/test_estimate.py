"""Estimates of the weight: from judgements, by §B.6, and the one deployed without judgements."""

from dataclasses import dataclass

import numpy as np
import pytest

from experiments.simulation import World, simulate
from ridgerank.fusion.correlations import Correlations, correlate
from ridgerank.fusion.estimate import (
    FALLBACK_WEIGHT,
    MOST_CERTAIN,
    PRIOR,
    LogRatio,
    UnboundedWeight,
    closed_form_estimate,
    combine_readings,
    combine_with_judgements,
    estimate_by_ratio,
    label_free_estimate,
    read_ratio_from_rarity,
    read_ratio_from_teacher,
    third_moments,
)
from ridgerank.fusion.weight import WeightEstimate, objective, optimal_weight
from ridgerank.ragged import Floats


@dataclass(frozen=True)
class Case:
    """A reranker that may copy some of its teacher, as a calibration sees it."""

    unlabelled: Correlations
    moments: Floats
    judged: Correlations

    @property
    def ratio(self) -> LogRatio:
        return combine_readings(
            read_ratio_from_teacher(self.unlabelled), read_ratio_from_rarity(self.moments)
        )

    @property
    def rho(self) -> float:
        return float(self.unlabelled.mutual.mean())


def draw(world: World, queries: int, seed: int, *, copied: float = 0.0, discounted: bool = True) -> Case:
    drawn = simulate(world, queries=queries, seed=seed)
    b, s = drawn.retriever, drawn.reranker + copied * drawn.teacher
    return Case(
        correlate(b, s, drawn.teacher, drawn.lists, discounted=discounted),
        third_moments(b, s, drawn.lists),
        correlate(b, s, drawn.grades, drawn.lists, discounted=discounted),
    )


def judged(world: World, queries: int, seed: int) -> Correlations:
    return draw(world, queries, seed, discounted=False).judged


def estimates(case: Case) -> tuple[WeightEstimate, WeightEstimate]:
    """Deployed, and §B.6."""
    paper = label_free_estimate(case.unlabelled)
    return estimate_by_ratio(paper, case.ratio, case.rho), paper


def constant(first: float, second: float, mutual: float, queries: int = 30) -> Correlations:
    """The same three correlations in every query."""
    return Correlations(np.full(queries, first), np.full(queries, second), np.full(queries, mutual), 0, 0, 0)


def test_the_weight_is_the_closed_form_of_the_averaged_correlations() -> None:
    seen = judged(World(), 50, 1)
    estimate = closed_form_estimate(seen)
    assert estimate == closed_form_estimate(seen)
    assert estimate.weight == float(optimal_weight(*seen.stacked().mean(axis=0)))
    assert estimate.method == "closed-form"
    assert estimate.queries_used == seen.queries
    low, high = estimate.weight_interval
    assert low < estimate.weight < high
    assert estimate.chance_of_gain > 0.9


def test_the_label_free_weight_converges_to_the_one_read_from_relevance() -> None:
    world = World(c_b=0.5, c_s=0.6, c_t=0.7)
    truth = closed_form_estimate(judged(world, 20_000, 0)).weight
    errors = []
    for queries in (16, 256, 4096):
        cases = [draw(world, queries, seed, discounted=False) for seed in range(1, 9)]
        weights = [label_free_estimate(case.unlabelled).weight for case in cases]
        errors.append(float(np.mean(np.abs(np.array(weights) - truth))))
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 0.01


def test_the_interval_covers_the_true_weight_about_as_often_as_it_says() -> None:
    truth = closed_form_estimate(judged(World(), 20_000, 0)).weight
    intervals = [closed_form_estimate(judged(World(), 40, seed)).weight_interval for seed in range(1, 101)]
    assert 0.88 <= np.mean([low <= truth <= high for low, high in intervals]) <= 1.0


def test_one_query_says_nothing_about_its_own_uncertainty() -> None:
    estimate = closed_form_estimate(constant(0.2, 0.9, 0.1, queries=1))
    assert estimate.weight_interval == (0.0, 1.0)
    assert "only 1 query says" in estimate.note


@pytest.mark.parametrize(
    ("retriever_third", "note"), [(0.005, "exceeds 1"), (-0.1, "not all three correlations are positive")]
)
def test_an_undefined_one_factor_estimate_falls_back_to_a_cautious_weight_and_says_so(
    retriever_third: float, note: str
) -> None:
    estimate = label_free_estimate(constant(retriever_third, 0.6, 0.1))
    assert (estimate.method, estimate.weight) == ("prior", FALLBACK_WEIGHT)
    assert note in estimate.note
    assert np.isnan(estimate.c_s)


def test_a_teacher_as_good_as_relevance_is_not_a_reason_to_fall_back() -> None:
    """With c_t near 1 every other sample puts its estimate above 1."""
    world = World(c_b=0.45, c_s=0.85, c_t=0.98)
    cases = [draw(world, 80, seed, discounted=False) for seed in range(1, 21)]
    found = [label_free_estimate(case.unlabelled) for case in cases]
    truth = closed_form_estimate(judged(world, 4000, 0)).weight
    assert {estimate.method for estimate in found} == {"label-free"}
    assert any("as good as relevance" in estimate.note for estimate in found)
    assert all(abs(estimate.weight - truth) < 0.15 for estimate in found)


def test_shrinking_moves_few_queries_to_the_retriever_alone_and_leaves_many_alone() -> None:
    assert float(optimal_weight(*PRIOR)) == pytest.approx(0.0)
    few, many = constant(0.1, 0.9, 0.1, queries=2), constant(0.1, 0.9, 0.1, queries=5000)
    plain = closed_form_estimate(few).weight
    assert closed_form_estimate(few, shrink=True).weight < plain
    assert closed_form_estimate(many, shrink=True).weight == pytest.approx(plain, abs=0.01)


def test_a_shrunk_weight_is_almost_never_worse_than_the_retriever_alone() -> None:
    """A weak reranker and four queries: what ruins a plain estimate."""
    world = World(c_b=0.5, c_s=0.25)
    test = judged(world, 5000, 999).stacked().mean(axis=0)
    losses = {True: 0, False: 0}
    for seed in range(100):
        seen = judged(world, 4, seed)
        for shrink in losses:
            weight = np.asarray(closed_form_estimate(seen, shrink=shrink).weight)
            losses[shrink] += int(objective(weight, *test) < test[0])
    assert losses[True] <= 5 < losses[False]


def test_the_chance_of_gain_is_how_often_drawn_ratios_gain_and_never_certain() -> None:
    weight, rho = UnboundedWeight(0.55, 0.2), 0.4
    drawn = np.random.default_rng(0).normal(weight.mean, weight.error, 20_000)
    contrast = np.clip((2 * drawn - 1) * (1 - rho) / (1 + rho), -0.999, 0.999)
    ratios = (1 + contrast) / (1 - contrast)
    gains = objective(np.asarray(weight.weight), np.ones_like(ratios), ratios, np.asarray(rho)) > 1.0
    assert weight.chance_of_gain(rho) == pytest.approx(gains.mean(), abs=0.01)
    assert UnboundedWeight(-0.1, 0.2).chance_of_gain(rho) == 0.0
    deployed, paper = estimates(draw(World(0.4, 0.7, 0.8), 400, 1))
    assert paper.chance_of_gain == MOST_CERTAIN < 1.0
    assert 0.8 < deployed.chance_of_gain < 1.0


def test_the_interval_holds_the_judged_weight_where_the_papers_does_not() -> None:
    """Rerankers that copy some of their teacher: the one-factor model does not hold."""
    held = {"deployed": 0, "paper": 0}
    cases = [(World(0.45, c_s, 0.6), copied) for c_s in (0.4, 0.6) for copied in (0.5, 1.0)]
    for world, copied in cases:
        truth = closed_form_estimate(draw(world, 3000, 99, copied=copied).judged).weight
        for seed in range(10):
            for name, each in zip(held, estimates(draw(world, 80, seed, copied=copied)), strict=True):
                held[name] += each.weight_interval[0] <= truth <= each.weight_interval[1]
    assert held["deployed"] >= 0.9 * 10 * len(cases)
    assert held["paper"] <= 0.6 * 10 * len(cases)


def test_few_judgements_combined_are_nearer_to_many_than_alone() -> None:
    world = World(0.45, 0.5, 0.7)
    truth = closed_form_estimate(draw(world, 3000, 99, copied=0.5).judged).weight
    errors = {"combined": 0.0, "alone": 0.0}
    for seed in range(40):
        unlabelled = draw(world, 100, seed, copied=0.5)
        few = draw(world, 12, 1000 + seed, copied=0.5).judged
        closed_form = closed_form_estimate(few)
        combined = combine_with_judgements(closed_form, few, unlabelled.ratio, unlabelled.rho)
        assert combined.method == "combined"
        errors["alone"] += (closed_form.weight - truth) ** 2
        errors["combined"] += (combined.weight - truth) ** 2
    assert errors["combined"] < 0.7 * errors["alone"]
