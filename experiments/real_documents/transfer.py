"""Readouts and weights for the questions of `real_documents`, taught by other questions.

One kind of document is left out at a time. The questions of all other kinds together are calibrated on, as
`ridgerank calibrate` does (`calibration/fit.py`: readout, penalty, weight), and the result ranks the
kind that was left out.
"""

from dataclasses import dataclass, field

import numpy as np

from experiments.real_documents.checkpoints import QuestionTable
from experiments.real_documents.resample import SELECTED
from ridgerank.calibration.fit import WeighedReadout, fit, weigh
from ridgerank.calibration.weight import MANY_JUDGED
from ridgerank.fusion.correlations import correlate
from ridgerank.fusion.estimate import FALLBACK_WEIGHT, closed_form_estimate
from ridgerank.fusion.standardize import fuse_scores
from ridgerank.fusion.weight import fit_one_factor, optimal_weight
from ridgerank.ragged import Floats, Ragged

JUDGED = "closed form"
"""The weight of judgements of the teaching questions, shrunk where they are few, 0 where no gain is seen."""
LABEL_FREE = "label-free"
"""The deployed weight without judgements: c_b taken over all readings, shrunk and set to 0 likewise."""
ONE_READING = "label-free of one reading"
"""The same with c_b of each reading by itself."""
PAPER_JUDGED = "closed form of the paper"
"""Eq. 4 on the teaching questions, neither shrunk nor set to 0."""
PAPER_LABEL_FREE = "label-free of the paper"
"""§B.6 on the unlabelled questions of the kind that is ranked, neither shrunk nor set to 0."""


@dataclass(slots=True)
class TransferredReadouts:
    """Scores of every question by readouts and weights of other questions, for one way of keeping pages."""

    scores: dict[str, Floats] = field(default_factory=dict)
    fused: dict[str, Floats] = field(default_factory=dict)
    weights: dict[str, dict[str, float]] = field(default_factory=dict)


def transfer_readouts(questions: QuestionTable, keep: str) -> TransferredReadouts:
    """Score each kind by what the others teach: every reading, and the selected one."""
    transferred = TransferredReadouts()
    count = questions.lists.members
    for kind in questions.kinds_in_order():
        lists, members = questions.lists.select(questions.kinds == kind)
        b = questions.columns["bm25"][members]
        observed = questions.observed(kind, keep, judged=True)
        judged = weigh(observed, fit(observed))
        unjudged = questions.observed(kind, keep, judged=False)
        selection = weigh(unjudged, fit(unjudged))
        for fitted, with_judgements in zip(selection.fitted, judged.fitted, strict=True):
            option = fitted.option
            scores = questions.states(keep)[option.state][members] @ fitted.fit.vector
            target = questions.columns[option.target][members]
            weights = {
                JUDGED: with_judgements.decision.deployed.weight,
                LABEL_FREE: fitted.decision.deployed.weight,
                ONE_READING: fitted.decision.paper_label_free.weight,
                PAPER_JUDGED: _paper_judged_weight(with_judgements),
                PAPER_LABEL_FREE: paper_label_free_weight(b, scores, target, lists),
            }
            for name in (option.name, *([SELECTED] if fitted is selection.selected else [])):
                transferred.scores.setdefault(name, np.zeros(count))[members] = scores
                for way, weight in weights.items():
                    fused = transferred.fused.setdefault(f"{name}, {way}", np.zeros(count))
                    fused[members] = fuse_scores(b, scores, weight, lists)
                    transferred.weights.setdefault(f"{name}, {way}", {})[kind] = round(weight, 3)
    return transferred


def fuse_by_judgements(questions: QuestionTable, scores: str) -> tuple[Floats, dict[str, float]]:
    """Fuse a column of scores, kind by kind, at w* (eq. 4) of the questions of all other kinds."""
    bm25, column = questions.columns["bm25"], questions.columns[scores]
    fused = np.zeros(len(column))
    weights = {}
    for kind in questions.kinds_in_order():
        lists, others = questions.lists.select(questions.kinds != kind)
        judged = correlate(bm25[others], column[others], questions.relevance[others], lists)
        estimate = closed_form_estimate(judged, shrink=judged.queries < MANY_JUDGED)
        weights[kind] = round(estimate.weight, 3)
        lists, members = questions.lists.select(questions.kinds == kind)
        fused[members] = fuse_scores(bm25[members], column[members], weights[kind], lists)
    return fused, weights


def _paper_judged_weight(fitted: WeighedReadout) -> float:
    """Eq. 4 on held-out scores of the teaching questions."""
    data = fitted.fit.data
    assert data.relevance is not None
    judged = correlate(data.retriever, fitted.fit.held_out_scores, data.relevance, data.lists)
    return closed_form_estimate(judged).weight


def paper_label_free_weight(b: Floats, s: Floats, t: Floats, lists: Ragged) -> float:
    """§B.6 as it stands, on the unlabelled queries being ranked; `FALLBACK_WEIGHT` where no root is real."""
    correlations = correlate(b, s, t, lists)
    if not correlations.queries:
        return FALLBACK_WEIGHT
    rho_bt, rho_st, rho_bs = correlations.stacked().mean(axis=0)
    factors = fit_one_factor(rho_bs, rho_bt, rho_st)
    # Above 1 an estimate is no correlation, but the weight reads only the ratio of the two.
    real = bool(factors.defined) or bool(factors.heywood)
    return float(optimal_weight(factors.c_b, factors.c_s, rho_bs)) if real else FALLBACK_WEIGHT
