"""The deployed weight: an estimate where one can be had, safe where none can, never silently harmful."""

import numpy as np
import pytest

from ridgerank.calibration.fusion_weight import weigh
from ridgerank.calibration.ridge_fit import Fit, RidgeProblem
from ridgerank.evaluation.simulation import World, simulate
from ridgerank.fusion.correlations import correlation
from ridgerank.fusion.estimate import FALLBACK_WEIGHT
from ridgerank.ragged import Floats
from ridgerank.readout.penalty import PenaltyChoice


def world(
    queries: int, *, retriever: float = 0.45, reranker: float = 0.6, teacher: float = 0.7, seed: int = 0
) -> tuple[RidgeProblem, Fit, Floats]:
    drawn = simulate(World(retriever, reranker, teacher), queries=queries, seed=seed)
    lessons = RidgeProblem(
        drawn.lists, ("",) * queries, drawn.retriever, drawn.teacher, np.zeros((drawn.lists.members, 1))
    )
    return lessons, fitted(lessons, drawn.reranker), drawn.grades.astype(np.float64)


def fitted(lessons: RidgeProblem, scores: Floats) -> Fit:
    choice = PenaltyChoice(np.ones(1), {}, {}, 1.0)
    return Fit(np.zeros(1), choice, {}, scores, correlation(scores, lessons.teacher, lessons.lists))


def test_scores_that_follow_the_model_give_an_estimate_with_a_gain() -> None:
    lessons, fit, _ = world(200)
    found = weigh(lessons, fit, None)
    assert (found.deployed.method, found.deployed.shrunk, found.warnings) == ("label-free", False, ())
    assert found.closed_form is None
    assert found.deployed.interior
    assert found.expected_gain > 0
    assert found.relevance_floor + 1 > 0
    assert found.agreement_interval[0] < found.agreement < found.agreement_interval[1]
    assert found.teacher_relevance == pytest.approx(0.7, abs=0.15)


def test_judgements_set_the_weight_and_both_estimates_are_reported() -> None:
    lessons, fit, relevance = world(200)
    found = weigh(lessons, fit, relevance)
    assert found.deployed is found.closed_form
    assert found.deployed.method == "closed-form"
    assert found.label_free.method == "label-free"


def test_a_weight_judged_on_another_corpus_stands_in_for_judgements_and_gives_way_to_them() -> None:
    lessons, fit, relevance = world(200)
    elsewhere = weigh(*world(100, seed=1)).closed_form
    found = weigh(lessons, fit, None, elsewhere=elsewhere)
    assert found.deployed is found.closed_form is elsewhere
    assert found.label_free.method == "label-free"
    here = weigh(lessons, fit, relevance, elsewhere=elsewhere)
    assert here.deployed is here.closed_form is not elsewhere


def test_few_queries_are_shrunk() -> None:
    assert weigh(*world(63)[:2], None).deployed.shrunk
    assert not weigh(*world(64)[:2], None).deployed.shrunk


def test_a_readout_that_does_not_follow_its_teacher_gets_no_weight() -> None:
    lessons, _, _ = world(64)
    noise = np.random.default_rng(3).normal(size=lessons.lists.members)
    found = weigh(lessons, fitted(lessons, noise), None)
    assert found.deployed.weight == 0.0
    assert found.expected_gain == 0.0
    assert "does not agree with the full model" in found.warnings[0]
    assert "the weight is 0, pages stay in the retriever's order" in found.warnings[0]


def test_a_model_that_shares_nothing_with_the_retriever_falls_back_and_shrinking_does_not_hide_it() -> None:
    """Readout and teacher agree with each other only; pulled to a prior, w would be near 1."""
    weights = []
    for seed in range(40):
        lessons, _, _ = world(32, seed=seed)
        generator = np.random.default_rng(1000 + seed)
        teacher = generator.normal(size=lessons.lists.members)
        alone = RidgeProblem(lessons.lists, lessons.corpora, lessons.retriever, teacher, lessons.states)
        scores = teacher + 0.5 * generator.normal(size=len(teacher))
        found = weigh(alone, fitted(alone, scores), None)
        assert bool(found.warnings) == (found.deployed.weight == FALLBACK_WEIGHT)
        weights.append(found.deployed.weight)
    assert weights.count(FALLBACK_WEIGHT) >= 39


def test_a_reranker_that_adds_nothing_by_the_judgements_leaves_the_retrievers_order() -> None:
    lessons, fit, _ = world(64)
    relevance = lessons.retriever - lessons.retriever.min()
    found = weigh(lessons, fit, relevance)
    assert found.deployed.weight == 0.0
    assert "no gain over the retriever is expected" in found.warnings[0]
