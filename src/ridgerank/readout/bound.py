"""Proposition 2: how much agreement with the full model guarantees about relevance."""

import numpy as np

from ridgerank.ragged import Floats


def relevance_floor(agreement: Floats, teacher_relevance: Floats) -> Floats:
    """c_s ≥ r·c_t − √((1 − r²)(1 − c_t²)), eq. 11: the least correlation with relevance that r allows.

    r: correlation of the readout's score with the full-depth margin; c_t: of that margin with relevance.
    """
    r, c_t = agreement, teacher_relevance
    slack = np.sqrt(np.maximum(1.0 - r**2, 0.0) * np.maximum(1.0 - c_t**2, 0.0))
    floor: Floats = r * c_t - slack
    return floor
