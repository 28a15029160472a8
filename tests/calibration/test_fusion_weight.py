"""The deployed weight: an estimate where one can be had, safe where none can, never silently harmful."""

from dataclasses import replace

import numpy as np
import pytest

from experiments.simulation import World, simulate
from ridgerank.calibration.ridge_fit import RidgeFit, RidgeProblem
from ridgerank.calibration.weight import decide_weight
from ridgerank.fusion.correlations import correlation
from ridgerank.ragged import Floats
from ridgerank.readout.ridge import PenaltyChoice


def world(
    queries: int, *, retriever: float = 0.45, reranker: float = 0.6, teacher: float = 0.7, seed: int = 0
) -> tuple[RidgeProblem, RidgeFit, Floats]:
    drawn = simulate(World(retriever, reranker, teacher), queries=queries, seed=seed)
    problem = RidgeProblem(
        drawn.lists, ("",) * queries, drawn.retriever, drawn.teacher, np.zeros((drawn.lists.members, 1))
    )
    return problem, fitted(problem, drawn.reranker), drawn.grades.astype(np.float64)


def fitted(problem: RidgeProblem, scores: Floats) -> RidgeFit:
    choice = PenaltyChoice(np.ones(1), {}, {}, 1.0)
    return RidgeFit(np.zeros(1), choice, {}, scores, correlation(scores, problem.targets, problem.lists))


def test_scores_that_follow_the_model_give_an_estimate_with_a_gain() -> None:
    problem, fit, _ = world(200)
    decision = decide_weight(problem, fit, None)
    assert (decision.deployed.method, decision.deployed.shrunk, decision.warnings) == ("label-free", True, ())
    assert decision.deployed.note.startswith("an estimate without judgements")
    assert decision.deployed.chance_of_gain < 1.0
    assert decision.paper_label_free.method == "label-free"
    assert decision.closed_form is None
    assert decision.deployed.interior
    assert decision.expected_gain > 0
    assert decision.relevance_floor + 1 > 0
    assert decision.agreement_interval[0] < decision.agreement < decision.agreement_interval[1]
    assert decision.teacher_relevance == pytest.approx(0.7, abs=0.15)


def test_judgements_set_the_weight_and_both_estimates_are_reported() -> None:
    problem, fit, relevance = world(200)
    decision = decide_weight(problem, fit, relevance)
    assert decision.deployed is decision.closed_form
    assert decision.deployed.method == "closed-form"
    assert decision.label_free.method == "label-free"


def test_a_weight_judged_on_another_corpus_stands_in_for_judgements_and_gives_way_to_them() -> None:
    problem, fit, relevance = world(200)
    transferred = decide_weight(*world(100, seed=1)).closed_form
    decision = decide_weight(problem, fit, None, transferred=transferred)
    assert decision.deployed is decision.closed_form is transferred
    assert decision.label_free.method == "label-free"
    here = decide_weight(problem, fit, relevance, transferred=transferred)
    assert here.deployed is here.closed_form is not transferred


def test_few_judged_queries_are_shrunk() -> None:
    few, many = (decide_weight(*world(queries)) for queries in (40, 120))
    assert few.deployed.shrunk
    assert not many.deployed.shrunk


def test_a_readout_that_does_not_follow_its_teacher_gets_no_weight() -> None:
    problem, _, _ = world(64)
    noise = np.random.default_rng(3).normal(size=problem.lists.members)
    decision = decide_weight(problem, fitted(problem, noise), None)
    assert decision.deployed.weight == 0.0
    assert decision.expected_gain == 0.0
    assert "does not agree with its teacher" in decision.warnings[0]
    assert "the weight is 0, pages stay in the retriever's order" in decision.warnings[0]


def test_a_model_that_shares_nothing_with_the_retriever_gets_no_weight_and_shrinking_does_not_hide_it() -> (
    None
):
    """Readout and teacher agree with each other only; pulled to a prior, w would be near 1."""
    weights = []
    for seed in range(40):
        problem, _, _ = world(32, seed=seed)
        generator = np.random.default_rng(1000 + seed)
        targets = generator.normal(size=problem.lists.members)
        alone = RidgeProblem(problem.lists, problem.corpora, problem.retriever, targets, problem.states)
        scores = targets + 0.5 * generator.normal(size=len(targets))
        decision = decide_weight(alone, fitted(alone, scores), None)
        assert bool(decision.warnings) == (decision.deployed.weight == 0.0)
        weights.append(decision.deployed.weight)
    assert weights.count(0.0) >= 39


def test_a_reranker_that_adds_nothing_by_the_judgements_leaves_the_retrievers_order() -> None:
    problem, fit, _ = world(64)
    relevance = problem.retriever - problem.retriever.min()
    decision = decide_weight(problem, fit, relevance)
    assert decision.deployed.weight == 0.0
    assert "no gain over the retriever is expected" in decision.warnings[0]


def unreadable(queries: int) -> tuple[RidgeProblem, RidgeFit, Floats]:
    """A model that cannot read these pages: it agrees with itself, and with nothing else."""
    problem, _, relevance = world(queries)
    noise = np.random.default_rng(3).normal(size=(2, problem.lists.members))
    blind = replace(problem, targets=noise[0])
    return blind, fitted(blind, noise[0] + 0.3 * noise[1]), relevance


@pytest.mark.parametrize("judged_queries", [1, 8, 40])
def test_judgements_that_show_nothing_do_not_open_the_gate(judged_queries: int) -> None:
    problem, fit, relevance = unreadable(40)
    assert "nothing shows" in decide_weight(problem, fit, None).doubt
    masked = np.where(problem.lists.list_numbers() < judged_queries, relevance, 0.0)
    decision = decide_weight(problem, fit, masked)
    assert decision.deployed.weight == 0.0
    assert "do not show it either" in decision.warnings[0]
    assert decision.doubt


def test_few_judgements_that_show_the_readout_knows_relevance_open_the_gate() -> None:
    problem, fit, relevance = unreadable(40)
    informed = fitted(problem, fit.held_out_scores + 2.0 * relevance)
    assert decide_weight(problem, informed, None).deployed.weight == 0.0
    masked = np.where(problem.lists.list_numbers() < 16, relevance, 0.0)
    decision = decide_weight(problem, informed, masked)
    assert decision.deployed.weight > 0.5
    assert (decision.doubt, decision.deployed.method) == ("", "closed-form")
