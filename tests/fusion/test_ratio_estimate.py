"""The label-free weight that is deployed: one ratio, pulled to 1 by what is not known of it."""

from dataclasses import dataclass

import numpy as np
import pytest

from experiments.simulation import World, simulate
from ridgerank.fusion.correlations import Correlations, ThirdMoments, correlate, measure_third_moments
from ridgerank.fusion.estimate import MOST_CERTAIN, WeightEstimate, closed_form_estimate, label_free_estimate
from ridgerank.fusion.ratio_estimate import (
    LARGEST_MISFIT,
    LogRatio,
    RatioReading,
    UnboundedWeight,
    average_by_precision,
    combine_readings,
    combine_with_judgements,
    estimate_by_ratio,
    read_misfit,
    read_ratio_from_rarity,
    read_ratio_from_teacher,
    unbounded_weight,
    weigh_by_judgements,
    weigh_without_judgements,
)
from ridgerank.fusion.weight import objective, optimal_weight
from ridgerank.ragged import Floats, Ragged


@dataclass(frozen=True)
class Case:
    """A reranker that copies some of its teacher, as a calibration sees it."""

    unlabelled: Correlations
    moments: ThirdMoments
    judged: Correlations

    @property
    def ratio(self) -> LogRatio:
        return combine_readings(
            read_ratio_from_teacher(self.unlabelled), read_ratio_from_rarity(self.moments)
        )

    @property
    def rho(self) -> float:
        return float(self.unlabelled.mutual.mean())


def draw(world: World, queries: int, seed: int, *, copied: float = 0.0) -> Case:
    drawn = simulate(world, queries=queries, seed=seed)
    reranker = drawn.reranker + copied * drawn.teacher
    return Case(
        correlate(drawn.retriever, reranker, drawn.teacher, drawn.lists),
        measure_third_moments(drawn.retriever, reranker, drawn.lists),
        correlate(drawn.retriever, reranker, drawn.grades, drawn.lists),
    )


def estimates(case: Case) -> tuple[WeightEstimate, WeightEstimate]:
    """Deployed, and §B.6."""
    paper = label_free_estimate(case.unlabelled)
    return estimate_by_ratio(paper, case.ratio, case.rho), paper


def constant(bt: float, st: float, bs: float) -> Correlations:
    """The same three correlations in every query."""
    return Correlations(np.full(9, bt), np.full(9, st), np.full(9, bs), 0, 0, 0)


def test_the_weight_depends_on_the_ratio_and_rho_alone() -> None:
    for c_b, c_s, rho in ((0.5, 0.6, 0.3), (0.25, 0.3, 0.3), (0.3, 0.2, 0.1)):
        r = c_s / c_b
        expected = (r - rho) / ((1 + r) * (1 - rho))
        assert float(optimal_weight(*map(np.asarray, (c_b, c_s, rho)))) == pytest.approx(expected)
        assert unbounded_weight(1.0, r, rho) == pytest.approx(expected)


def test_without_its_bounds_the_weight_goes_on_beyond_0_and_1() -> None:
    assert unbounded_weight(0.6, 0.1, 0.5) < 0.0 < 1.0 < unbounded_weight(0.1, 0.6, 0.5)
    assert UnboundedWeight(-0.2, 0.1).weight == 0.0
    assert UnboundedWeight(0.9, 0.1).interval == pytest.approx((0.704, 1.0))


@pytest.mark.parametrize("rho", [0.1, 0.4, 0.8])
def test_equally_good_scores_share_equally_whatever_their_correlation(rho: float) -> None:
    assert weigh_without_judgements(LogRatio(0.0, 0.1), rho).weight == pytest.approx(0.5)


def test_what_is_uncertain_is_pulled_to_equal_weights() -> None:
    sure, unsure = (LogRatio(0.6, variance) for variance in (0.01, 1.0))
    assert 0.0 < unsure.mean < sure.mean < 0.6
    assert sure.error < unsure.error < 0.7


def test_a_readout_that_follows_its_teacher_perfectly_leaves_one_reading_of_the_teacher() -> None:
    followed = constant(bt=0.5, st=1.0, bs=0.5)
    assert read_misfit(followed) == pytest.approx(0.0)
    assert read_ratio_from_teacher(followed).estimate == pytest.approx(np.log(2.0))


def test_the_less_a_readout_follows_its_teacher_the_less_it_is_worth_and_the_wider_the_error() -> None:
    readings = [read_ratio_from_teacher(constant(bt=0.4, st=st, bs=0.4)) for st in (0.9, 0.7, 0.5)]
    assert readings[0].estimate > readings[1].estimate > readings[2].estimate
    assert readings[0].error < readings[1].error < readings[2].error


def test_readings_that_differ_much_and_correlations_that_are_not_positive_tell_nothing() -> None:
    assert np.isnan(read_misfit(constant(bt=-0.1, st=0.5, bs=0.3)))
    assert read_misfit(constant(bt=0.02, st=0.4, bs=0.1)) > LARGEST_MISFIT


def test_a_retriever_worth_reranking_bounds_what_a_readout_that_hardly_agrees_with_it_is_worth() -> None:
    reading = read_ratio_from_teacher(constant(bt=0.09, st=0.6, bs=0.07))
    assert reading.estimate == pytest.approx(np.log(0.07 / 0.09))


def test_skewed_relevance_shows_the_ratio_even_of_a_readout_that_copies_a_poor_teacher() -> None:
    generator = np.random.default_rng(0)
    relevance = np.zeros((2000, 20))
    relevance[:, 0] = 4.36  # one of twenty, standardized: skewness 4.1
    relevance -= relevance.mean(axis=1, keepdims=True)

    def score(correlation: float) -> Floats:
        noise = generator.normal(size=relevance.shape)
        scores: Floats = (correlation * relevance + np.sqrt(1 - correlation**2) * noise).ravel()
        return scores

    lists = Ragged.of_lengths([20] * len(relevance))
    retriever, teacher = score(0.5), score(0.6)
    reading = read_ratio_from_rarity(measure_third_moments(retriever, teacher, lists))
    assert reading is not None
    assert reading.estimate == pytest.approx(np.log(0.6 / 0.5), abs=0.08)
    by_teacher = read_ratio_from_teacher(correlate(retriever, teacher, teacher, lists, discounted=False))
    assert by_teacher.estimate > 0.8


def test_moments_that_are_not_clear_of_chance_tell_nothing() -> None:
    noise = np.random.default_rng(0).normal(size=(2, 40))
    assert read_ratio_from_rarity(ThirdMoments(noise[0], noise[1])) is None
    assert read_ratio_from_rarity(ThirdMoments(np.ones(1), np.ones(1))) is None


def test_readings_that_disagree_widen_the_error_and_a_missing_one_leaves_the_other() -> None:
    teacher = RatioReading(0.8, 0.3)
    alone = combine_readings(teacher, None)
    assert alone.estimate == 0.8
    assert alone.variance > 0.09
    agree, differ = (combine_readings(teacher, RatioReading(other, 0.3)) for other in (0.8, -0.2))
    assert agree.estimate == pytest.approx(0.8)
    assert differ.estimate == pytest.approx(0.3)
    assert agree.variance < 0.09 < differ.variance


def test_no_chance_of_gain_is_certain_without_judgements() -> None:
    deployed, paper = estimates(draw(World(0.4, 0.7, 0.8), 400, 1))
    assert paper.chance_of_gain == MOST_CERTAIN < 1.0
    assert 0.8 < deployed.chance_of_gain < 1.0
    assert deployed.note.startswith("an estimate without judgements")


def test_the_chance_of_gain_is_how_often_drawn_ratios_gain() -> None:
    weight, rho = UnboundedWeight(0.55, 0.2), 0.4
    drawn = np.random.default_rng(0).normal(weight.mean, weight.error, 20_000)
    contrast = np.clip((2 * drawn - 1) * (1 - rho) / (1 + rho), -0.999, 0.999)
    ratios = (1 + contrast) / (1 - contrast)
    gains = objective(np.asarray(weight.weight), np.ones_like(ratios), ratios, np.asarray(rho)) > 1.0
    assert weight.chance_of_gain(rho) == pytest.approx(gains.mean(), abs=0.01)
    assert UnboundedWeight(-0.1, 0.2).chance_of_gain(rho) == 0.0


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


def test_two_estimates_count_by_their_precision() -> None:
    combined = average_by_precision(UnboundedWeight(0.2, 0.1), UnboundedWeight(0.8, 0.2))
    assert combined.mean == pytest.approx((0.2 * 100 + 0.8 * 25) / 125)
    assert combined.error == pytest.approx(125**-0.5)


def test_the_more_judgements_the_less_the_label_free_estimate_counts() -> None:
    ratio, rho = LogRatio(0.8, 0.1), 0.3
    blind = weigh_without_judgements(ratio, rho).mean
    shares = []
    for queries in (2, 8, 32):
        judged = draw(World(0.5, 0.4, 0.6), queries, 5).judged
        alone = weigh_by_judgements(judged).mean
        combined = combine_with_judgements(closed_form_estimate(judged), judged, ratio, rho)
        assert combined.method == "combined"
        shares.append((combined.weight - alone) / (blind - alone))
    assert shares[0] > shares[1] > shares[2] > 0.0


def test_few_judgements_combined_are_nearer_to_many_than_alone() -> None:
    world = World(0.45, 0.5, 0.7)
    truth = closed_form_estimate(draw(world, 3000, 99, copied=0.5).judged).weight
    errors = {"combined": 0.0, "alone": 0.0}
    for seed in range(40):
        unlabelled = draw(world, 100, seed, copied=0.5)
        judged = draw(world, 12, 1000 + seed, copied=0.5).judged
        closed_form = closed_form_estimate(judged)
        combined = combine_with_judgements(closed_form, judged, unlabelled.ratio, unlabelled.rho)
        errors["alone"] += (closed_form.weight - truth) ** 2
        errors["combined"] += (combined.weight - truth) ** 2
    assert errors["combined"] < 0.7 * errors["alone"]
