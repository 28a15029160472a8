"""The relevance score: a probability in [0, 1] that orders as the fused score does. Pure formulas.

Let one page in K be relevant, K as in the calibration: the pages whose hidden quality exceeds a threshold.
Let quality and fused score be jointly normal over the pages of a list, with the correlation r that the
calibration estimated (eq. 3). Then the probability that a page is relevant follows from its fused
score. It holds under these assumptions; one of them is that the list contains relevant pages at all.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from ridgerank.calibration.artifact import Calibration
from ridgerank.fusion.weight import objective
from ridgerank.ragged import Floats

UNKNOWN_CORRELATION = 0.5
"""r where the calibration could estimate none: an order of magnitude, no more."""
LEAST_CORRELATION = 0.05
GREATEST_CORRELATION = 0.9
"""r is held between these two."""
_BOUND = 6.0
"""The argument of Φ approaches this smoothly: near 0 and 1 floats run out, and scores would become equal."""


@dataclass(frozen=True, slots=True)
class Relevance:
    """P(relevant) = Φ(slope · F + offset), F the fused score."""

    slope: float
    offset: float
    estimated: bool
    """Whether the calibration could estimate the correlation behind the slope."""

    def probabilities(self, fused: Floats) -> Floats:
        """P(relevant) (pages,) of fused scores (pages,); strictly increasing."""
        probabilities: Floats = ndtr(_BOUND * np.tanh((self.slope * fused + self.offset) / _BOUND))
        return probabilities


def relevance_at(calibration: Calibration, weight: float) -> Relevance:
    """The map at one weight: the calibrated one, or 1 where the readout ranks alone.

    With x = F/σ the fused score in units of its width, σ² = (1 − w)² + w² + 2w(1 − w)ρ, and τ the threshold
    that 1/K of a normal distribution exceeds, P = Φ((r x − τ) / √(1 − r²)).
    """
    estimate = calibration.weight
    rho = 0.0 if math.isnan(estimate.rho) else estimate.rho
    width = math.sqrt(max((1 - weight) ** 2 + weight**2 + 2 * weight * (1 - weight) * rho, 1e-6))
    parts = (np.asarray(part) for part in (weight, estimate.c_b, estimate.c_s, rho))
    correlation = float(objective(*parts))
    share = 1.0 / max(calibration.diagnostics.candidates, 2)
    threshold = float(ndtri(1 - share))
    if estimate.is_judged:  # a correlation with judgements, yes or no, not with quality
        correlation *= math.sqrt(share * (1 - share)) * math.sqrt(2 * math.pi) * math.exp(threshold**2 / 2)
    estimated = not math.isnan(correlation)
    r = min(max(correlation if estimated else UNKNOWN_CORRELATION, LEAST_CORRELATION), GREATEST_CORRELATION)
    noise = math.sqrt(1 - r**2)
    return Relevance(r / (width * noise), -threshold / noise, estimated)
