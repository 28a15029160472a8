"""Proposition 2 at work: how a readout's agreement with its teacher bears on relevance, list by list."""

from dataclasses import dataclass

import numpy as np

from ridgerank.fusion.correlations import correlation
from ridgerank.ragged import Floats, Ragged


@dataclass(frozen=True, slots=True, eq=False)
class Agreement:
    """Correlations within each list where scores, targets and relevance all vary: (lists,) each."""

    teacher: Floats
    """r: of the readout's score with the teacher's margin."""
    teacher_relevance: Floats
    """c_t: of the margin with relevance."""
    relevance: Floats
    """c_s: of the readout's score with relevance."""

    @property
    def floor(self) -> Floats:
        """What r and c_t guarantee of c_s, eq. 11; c_s is never below it."""
        return relevance_floor(self.teacher, self.teacher_relevance)


def relevance_floor(agreement: Floats, teacher_relevance: Floats) -> Floats:
    """c_s ≥ r·c_t − √((1 − r²)(1 − c_t²)), eq. 11: the least correlation with relevance that r allows.

    r: correlation of the readout's score with the full-depth margin; c_t: of that margin with relevance.
    """
    r, c_t = agreement, teacher_relevance
    slack = np.sqrt(np.maximum(1.0 - r**2, 0.0) * np.maximum(1.0 - c_t**2, 0.0))
    floor: Floats = r * c_t - slack
    return floor


def measure_agreement(scores: Floats, targets: Floats, relevance: Floats, lists: Ragged) -> Agreement:
    """Correlate readout scores, teacher margins and relevance, (members,) each, within their lists."""
    varied = np.logical_and.reduce([lists.max(v) > lists.min(v) for v in (scores, targets, relevance)])
    kept, members = lists.select(varied)
    s, t, y = (values[members] for values in (scores, targets, relevance))
    return Agreement(correlation(s, t, kept), correlation(t, y, kept), correlation(s, y, kept))
