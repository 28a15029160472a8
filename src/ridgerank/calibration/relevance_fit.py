"""Probabilities of relevance from a calibration's lists: fitted to judgements, or the margin's own reading.

- **Judgements.** A page is relevant where its grade is above 0. Only queries with relevant candidates and
  others count: of a list without any, nobody knows whether it was judged. An unanswered query is made of
  each by taking its relevant candidates out of the list; half of the lists that the query's probability is
  fitted to have an answer, half have none.
- **Judgements of another corpus** come with its weight (`transfer.py`).
- **None.** A margin is log odds: the model's yes over its no. So 1 / (1 + e^−t̂) is what the full model would
  say, as far as t̂ predicts it. Nobody checked that it is right.
- **Neither**: a likelihood without judgements, or a target that cannot be predicted, or nothing that shows
  that the model can tell relevant pages here. There is no probability.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ridgerank.calibration.relevance_model import RelevanceModel
from ridgerank.calibration.ridge_fit import RidgeProblem, assign_folds, score_by_fold, sum_by_fold
from ridgerank.fusion.relevance_probability import (
    PAGE_FEATURES,
    QUERY_FEATURES,
    Logistic,
    fit_logistic,
    page_features,
    query_features,
    remove_relevant,
)
from ridgerank.ragged import Bools, Floats, Ragged
from ridgerank.readout.target_readout import ListMeans, TargetReadout, fit_target_readouts
from ridgerank.records import Target

LEAST_JUDGED = 8
"""Queries with a relevant candidate; with fewer, a probability is not fitted to them."""
_PAGE_COLUMNS: dict[Target, int] = {"margin": 1, "likelihood": 2, "teacher": 2}
"""A margin means the same for every query, so that a page's probability needs no other page. A likelihood
depends on the query's words: its distance from the list's mean is needed, too. Of a teacher's score neither
is known."""


class PredictedRelevance(NamedTuple):
    """The model, and every member's target as a readout predicts it that was fitted without its fold."""

    model: RelevanceModel
    predicted: Floats


def fit_relevance(
    problem: RidgeProblem,
    target: Target,
    relevance: Floats | None,
    *,
    transferred: RelevanceModel | None = None,
) -> PredictedRelevance:
    """The model of one reading; `relevance` (members,) where there are judgements.

    Without any, probabilities `transferred` from the judgements of another corpus are taken: they are of the
    same target, which is predicted by a readout of this corpus.
    """
    readout, predicted = predict_held_out(problem)
    centered = problem.targets - problem.targets.mean()
    explained = float(1 - ((problem.targets - predicted) ** 2).sum() / (centered**2).sum())
    if transferred is not None:
        model = replace(transferred, readout=readout, explained=explained)
    elif target == "margin" and explained > 0:
        page = Logistic(0.0, (1.0,) + (0.0,) * (len(PAGE_FEATURES) - 1))
        query = Logistic(0.0, (1.0,) + (0.0,) * (len(QUERY_FEATURES) - 1))
        note = "the full model's own odds of yes, predicted; no judgement has checked them"
        model = RelevanceModel(readout, explained, page, query, False, 0, note)
    else:
        note = _explain_lack(target)
        model = RelevanceModel(readout, explained, None, None, False, 0, note)
    if relevance is not None:
        model = refit_probabilities(model, predicted, problem.lists, relevance, target)
    return PredictedRelevance(model, predicted)


def refit_probabilities(
    model: RelevanceModel, predicted: Floats, lists: Ragged, relevance: Floats, target: Target
) -> RelevanceModel:
    """The model with probabilities fitted to judged lists; as it was where too few of them say something.

    `predicted` and `relevance` are of members of `lists`, whose targets were predicted unseen.
    """
    judged = np.asarray((lists.max(relevance) > 0) & (lists.min(relevance) <= 0))
    count = int(judged.sum())
    if count < LEAST_JUDGED:
        return model
    lists, members = lists.select(judged)
    page, query = fit_probabilities(predicted[members], lists, relevance[members] > 0, target)
    note = f"fitted to {count} judged queries"
    return replace(model, page=page, query=query, calibrated=True, judged_queries=count, note=note)


def withhold_probabilities(model: RelevanceModel, doubt: str) -> RelevanceModel:
    """The model without probabilities where there is a doubt that it can tell relevant pages at all."""
    if not doubt:
        return model
    note = f"{doubt}; calibrate with judged queries (--qrels) that show it"
    return replace(model, page=None, query=None, calibrated=False, judged_queries=0, note=note)


def _explain_lack(target: Target) -> str:
    """Why there is no probability without judgements."""
    reason = (
        f"{'a likelihood' if target == 'likelihood' else 'this score'} is no probability of relevance"
        if target != "margin"
        else ("the full model's margin cannot be predicted on lists that were not fitted")
    )
    return f"{reason}; calibrate with at least {LEAST_JUDGED} judged queries (--qrels)"


def predict_held_out(problem: RidgeProblem) -> tuple[TargetReadout, Floats]:
    """The readout of the target from all lists, and every member's target predicted without its fold."""
    folds = assign_folds(problem.corpora)
    means = ListMeans(
        states=_mean_states(problem),
        targets=problem.lists.sum(problem.targets) / problem.lists.lengths,
        folds=tuple(folds),
        members=problem.lists.members / len(problem.lists),
    )
    readout, held_out = fit_target_readouts(sum_by_fold(problem, folds), means)
    scores = score_by_fold(problem, folds, {fold: each.vector for fold, each in held_out.items()})
    return readout, scores + problem.lists.repeat(_intercepts(folds, held_out))


def fit_probabilities(
    predicted: Floats, lists: Ragged, relevant: Bools, target: Target = "margin"
) -> tuple[Logistic, Logistic]:
    """Of a page and of a query, from lists that each have relevant members and others."""
    page = fit_logistic(page_features(predicted, lists), relevant, columns=_PAGE_COLUMNS[target])
    unanswered, kept = remove_relevant(lists, relevant)
    features = np.concatenate([query_features(predicted, lists), query_features(predicted[kept], unanswered)])
    return page, fit_logistic(features, np.arange(len(features)) < len(lists))


def _mean_states(problem: RidgeProblem) -> Floats:
    states = problem.states
    if not isinstance(states, np.ndarray):
        return states.means()
    return problem.lists.sum(states) / problem.lists.lengths[:, None]


def _intercepts(folds: Sequence[str], readouts: dict[str, TargetReadout]) -> Floats:
    return np.array([readouts[fold].intercept for fold in folds])
