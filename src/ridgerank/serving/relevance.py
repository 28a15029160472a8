"""A number in [0, 1] that orders as the fused score does, and what it claims. Pure formulas.

Within a list the fused score is a sum of standardized scores. Suppose one candidate in K is relevant, K as
in the calibration, and the scores of relevant and of other pages are two normal distributions of equal width.
Their distance follows from the fused score's correlation with relevance, which the calibration estimated
(eq. 3): the log-odds of relevance are then a straight line in the score. So the number is the chance that a
page is relevant, under these assumptions: that the list holds a relevant page at all is taken for granted.
"""

import math
from dataclasses import dataclass

import numpy as np

from ridgerank.calibration.artifact import Calibration
from ridgerank.fusion.weight import objective
from ridgerank.lists import Floats

UNKNOWN_CORRELATION = 0.5
"""Where the calibration could estimate none: an order of magnitude, no more."""
LEAST_CORRELATION = 0.05
GREATEST_CORRELATION = 0.9
"""Nobody's chances are computed from more certainty than this."""
_BOUND = 20.0
"""Log-odds approach this smoothly: near 0 and 1 floats run out, and different scores would become one."""


@dataclass(frozen=True, slots=True)
class Relevance:
    """The straight line from fused score to log-odds of relevance."""

    slope: float
    offset: float
    """At a fused score of 0."""
    estimated: bool
    """Whether the calibration could tell the correlation the slope is made of."""

    def of(self, fused: Floats) -> Floats:
        """Chances (pages,) of fused scores (pages,); strictly increasing."""
        odds = _BOUND * np.tanh((self.slope * fused + self.offset) / _BOUND)
        chances: Floats = 1.0 / (1.0 + np.exp(-odds))
        return chances


def relevance_at(calibration: Calibration, weight: float) -> Relevance:
    """The line for one weight: the calibrated one, or 1 where the readout ranks alone.

    With r the correlation of the fused score with relevance, π = 1/K and σ the fused score's width, the
    means of the two kinds of pages lie D = r / √(π(1 − π)) widths apart, and of the variance 1 − r² is left
    within each kind: the slope is D / (1 − r²) a width, and the odds are π / (1 − π) half-way between them.
    """
    estimate = calibration.weight
    rho = 0.0 if math.isnan(estimate.rho) else estimate.rho
    width = math.sqrt(max((1 - weight) ** 2 + weight**2 + 2 * weight * (1 - weight) * rho, 1e-6))
    parts = (np.asarray(part) for part in (weight, estimate.c_b, estimate.c_s, rho))
    found = float(objective(*parts))
    estimated = not math.isnan(found)
    r = min(max(found if estimated else UNKNOWN_CORRELATION, LEAST_CORRELATION), GREATEST_CORRELATION)
    share = 1.0 / max(calibration.diagnostics.candidates, 2)
    apart = r / math.sqrt(share * (1 - share))
    slope = apart / (1 - r**2)
    halfway = (1 - 2 * share) * apart / 2
    return Relevance(slope / width, math.log(share / (1 - share)) - slope * halfway, estimated)
