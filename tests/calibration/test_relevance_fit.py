"""Probabilities of relevance: fitted to judgements, the margin's own reading, or none; it is said which."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest

from ridgerank.calibration.relevance_fit import LEAST_JUDGED, fit_relevance, predict_held_out
from ridgerank.calibration.relevance_model import RelevanceModel
from ridgerank.calibration.ridge_fit import RidgeProblem
from ridgerank.ragged import Bools, Floats, Ragged
from ridgerank.readout.moments import CenteredMoments
from ridgerank.records import AnswerProbability, Target

LISTS, MEMBERS, DIM = 48, 10, 6


def judged_problem(*, noise: float = 0.3) -> tuple[RidgeProblem, Floats]:
    """Margins that follow the states, and grades drawn by the margins' odds, two relevant pages at least."""
    generator = np.random.default_rng(4)
    states = generator.normal(size=(LISTS * MEMBERS, DIM))
    truth = generator.normal(size=DIM)
    truth *= 3 / np.linalg.norm(truth)
    targets = states @ truth - 1 + noise * generator.normal(size=len(states))
    relevant = generator.random(len(states)) < 1 / (1 + np.exp(-targets))
    problem = RidgeProblem(
        lists=Ragged.of_lengths([MEMBERS] * LISTS),
        corpora=("",) * LISTS,
        retriever=generator.normal(size=len(states)),
        targets=targets,
        states=states,
    )
    return problem, np.where(relevant, generator.integers(1, 3, len(states)), 0).astype(float)


def fit_model(
    problem: RidgeProblem,
    target: Target,
    relevance: Floats | None,
    *,
    transferred: RelevanceModel | None = None,
) -> RelevanceModel:
    return fit_relevance(problem, target, relevance, transferred=transferred).model


def test_judgements_make_it_calibrated_and_tell_answered_lists_from_others() -> None:
    problem, relevance = judged_problem()
    model = fit_model(problem, "margin", relevance)
    assert model.calibrated
    assert model.judged_queries >= 40
    states = np.asarray(problem.states).reshape(LISTS, MEMBERS, DIM)
    grades = relevance.reshape(LISTS, MEMBERS)
    claimed = np.concatenate([model.assess(each)[0] or [] for each in states])
    assert claimed.mean() == pytest.approx((relevance > 0).mean(), abs=0.03)
    answered = [model.assess(each)[1] for each in states]
    without = [
        model.assess(each[marks == 0])[1]
        for each, marks in zip(states, grades, strict=True)
        if (marks == 0).any()
    ]
    assert all(each.calibrated for each in answered)
    with_answer = np.mean([each.probability or 0.0 for each in answered])
    assert with_answer > np.mean([each.probability or 0.0 for each in without]) + 0.3


def test_without_judgements_a_margin_is_read_as_log_odds_and_marked_uncalibrated() -> None:
    problem, _ = judged_problem()
    model = fit_model(problem, "margin", None)
    states = np.asarray(problem.states)[:MEMBERS]
    pages, answered, predicted = model.assess(states)
    odds = 1 / (1 + np.exp(-np.array(predicted)))
    np.testing.assert_allclose(pages or [], odds)
    assert answered.probability == pytest.approx(odds.max())
    assert not answered.calibrated
    assert "no judgement" in model.note


def test_a_likelihood_without_judgements_has_no_probability() -> None:
    problem, relevance = judged_problem()
    model = fit_model(problem, "likelihood", None)
    said = model.assess(np.asarray(problem.states)[:3])
    assert (said.pages, said.answered) == (None, AnswerProbability(None, calibrated=False))
    assert "--qrels" in model.note
    assert fit_model(problem, "likelihood", relevance).calibrated


def test_a_margin_that_cannot_be_predicted_has_no_probability() -> None:
    problem, _ = judged_problem()
    noise = np.random.default_rng(5).normal(size=len(problem.targets))
    model = fit_model(replace(problem, targets=noise), "margin", None)
    assert model.explained <= 0
    assert model.page is None
    assert "cannot be predicted" in model.note


def test_too_few_judged_queries_are_not_fitted_to() -> None:
    problem, relevance = judged_problem()
    few = relevance.reshape(LISTS, MEMBERS).copy()
    few[LEAST_JUDGED - 1 :] = 0
    assert not fit_model(problem, "margin", few.ravel()).calibrated
    some = relevance.reshape(LISTS, MEMBERS).copy()
    some[3 * LEAST_JUDGED :] = 0
    assert fit_model(problem, "margin", some.ravel()).judged_queries <= 3 * LEAST_JUDGED


def test_probabilities_of_another_corpus_stand_in_for_judgements_and_not_for_the_readout() -> None:
    problem, relevance = judged_problem()
    other = replace(fit_model(problem, "margin", relevance), note="of another corpus")
    shifted = replace(problem, targets=problem.targets + 2)
    model = fit_model(shifted, "margin", None, transferred=other)
    assert model.calibrated
    assert (model.page, model.query, model.note) == (other.page, other.query, "of another corpus")
    assert model.readout.intercept == pytest.approx(other.readout.intercept + 2)
    assert "judged queries" in fit_model(problem, "margin", relevance, transferred=other).note


def test_a_page_of_a_margin_has_one_probability_whatever_stands_beside_it() -> None:
    problem, relevance = judged_problem()
    model = fit_model(problem, "margin", relevance)
    states = np.asarray(problem.states)[:MEMBERS]
    alone = [(model.assess(states[[row]])[0] or [])[0] for row in range(MEMBERS)]
    np.testing.assert_allclose(alone, model.assess(states)[0] or [])


@dataclass(frozen=True, slots=True, eq=False)
class StatesElsewhere:
    """What other machines hold: only sums, scores and means come back."""

    lists: Ragged
    states: Floats

    def select(self, lists: Bools) -> "StatesElsewhere":
        selected, members = self.lists.select(lists)
        return StatesElsewhere(selected, self.states[members])

    def _split(self) -> list[Floats]:
        return np.split(self.states, self.lists.offsets[1:-1])

    def moments(self, folds: Sequence[str], targets: Sequence[Floats]) -> dict[str, CenteredMoments]:
        sums: dict[str, CenteredMoments] = {}
        for fold, states, values in zip(folds, self._split(), targets, strict=True):
            sums.setdefault(fold, CenteredMoments(states.shape[1])).add(states, values)
        return sums

    def scores(self, vectors: Sequence[Floats]) -> Floats:
        return np.concatenate(
            [states @ vector for states, vector in zip(self._split(), vectors, strict=True)]
        )

    def means(self) -> Floats:
        return np.stack([states.mean(axis=0) for states in self._split()])


def test_states_on_other_machines_give_the_same_model() -> None:
    problem, _ = judged_problem()
    remote = replace(problem, states=StatesElsewhere(problem.lists, np.asarray(problem.states)))
    (here, predicted_here), (there, predicted_there) = predict_held_out(problem), predict_held_out(remote)
    np.testing.assert_allclose(here.vector, there.vector, rtol=1e-9)
    np.testing.assert_allclose(predicted_here, predicted_there, rtol=1e-9, atol=1e-9)
