"""The readout without list centering, which the paper compares its own with (§4.4)."""

from ridgerank.ragged import Floats
from ridgerank.readout.moments import CenteredMoments
from ridgerank.readout.ridge import PENALTIES, ridge_path


def pointwise_path(states: Floats, targets: Floats, penalties: Floats = PENALTIES) -> Floats:
    """Ridge over all pairs with one free intercept: eq. 8 with a single list that holds every pair.

    states (pairs, dim), targets (pairs,) → (penalties, dim). The intercept moves all scores alike and
    so never a ranking; it is not returned.
    """
    moments = CenteredMoments(states.shape[1])
    moments.add(states, targets)
    return ridge_path(moments, penalties)
