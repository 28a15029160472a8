"""How good probabilities are: whether they are right, and whether they tell two kinds apart."""

from dataclasses import dataclass

import numpy as np
from scipy.stats import rankdata

from ridgerank.ragged import Bools, Floats

BINS = 10


@dataclass(frozen=True, slots=True)
class ReliabilityBin:
    """Rows whose probability lies in one bin."""

    rows: int
    claimed: float
    """Their mean probability."""
    observed: float
    """The share of them that is true."""


def reliability_bins(
    probabilities: Floats, labels: Bools, *, bins: int = BINS, equal_mass: bool = False
) -> list[ReliabilityBin]:
    """Bins of equal width over [0, 1], or of as many rows each; empty ones are left out."""
    inner = np.linspace(0, 1, bins + 1)[1:-1]
    edges = np.quantile(probabilities, inner) if equal_mass else inner
    numbers = np.searchsorted(edges, probabilities, side="right")
    return [
        ReliabilityBin(int(rows.sum()), float(probabilities[rows].mean()), float(labels[rows].mean()))
        for rows in (numbers == number for number in range(bins))
        if rows.any()
    ]


def expected_calibration_error(
    probabilities: Floats, labels: Bools, *, bins: int = BINS, equal_mass: bool = False
) -> float:
    """Mean over rows of |mean probability of their bin − share of their bin that is true|."""
    parts = reliability_bins(probabilities, labels, bins=bins, equal_mass=equal_mass)
    return sum(part.rows * abs(part.claimed - part.observed) for part in parts) / len(probabilities)


def auroc(scores: Floats, labels: Bools) -> float:
    """How often a true row scores above a false one, ties counting half."""
    count = int(labels.sum())
    above = rankdata(scores)[labels].sum() - count * (count + 1) / 2
    return float(above / (count * (len(labels) - count)))
