"""The two readouts the paper compares its own with: without list centering, and without any fit (§4.4)."""

import numpy as np

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


def logit_lens(states: Floats, unembedding: Floats, gain: Floats, *, epsilon: float) -> Floats:
    """u'ν(h): the shallow state through the model's own final norm and answer rows, nothing fitted.

    ν is the root-mean-square norm ν(h) = g · h / √(mean(h²) + ε) that both of the paper's backbones
    apply; states (pairs, dim), u and g (dim,) → (pairs,).
    """
    scale = np.sqrt((states**2).mean(axis=1) + epsilon)
    lens: Floats = states @ (gain * unembedding) / scale
    return lens
