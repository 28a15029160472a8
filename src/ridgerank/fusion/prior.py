"""A prior for the correlations of two scores, and how fast data overrules it.

With few queries the three correlations are noise, and the weight computed from them can rank far below the
retriever alone. Shrinking pulls each correlation towards a prior by their precisions: a handful of
queries moves the weight a little, a hundred leave nothing of the prior. It works on the correlations, not
on the weight, because at the end points 0 and 1 the weight itself stops telling how uncertain it is.
"""

from dataclasses import dataclass

import numpy as np

from ridgerank.fusion.correlations import Correlations
from ridgerank.ragged import Floats

_SPREAD_DEGREES = 4
"""How many queries' worth of trust the prior spread between queries deserves."""


@dataclass(frozen=True, slots=True)
class Prior:
    """Expected correlations of a corpus, and how much corpora and queries differ.

    The defaults describe a reranker that adds nothing to the retriever (c_s = ρ c_b, a weight of 0): the
    retriever's order is left only as far as queries support it. The spreads are assumptions: 0.1 between
    corpora, 0.25 between queries with twenty candidates.
    """

    c_b: float = 0.4
    c_s: float = 0.1
    rho: float = 0.25
    between_corpora: float = 0.1
    between_queries: float = 0.25

    @property
    def mean(self) -> Floats:
        """(3,): c_b, c_s, ρ."""
        return np.array([self.c_b, self.c_s, self.rho])

    def share(self, correlations: Correlations) -> Floats:
        """(3,) in (0, 1]: the prior's share in the shrunk correlations, by the two precisions.

        σ²/n against τ²: σ² the spread between queries (the sample's, steadied by the prior's when there
        are few), τ² the spread between corpora.
        """
        rows = correlations.stacked()
        if not len(rows):
            return np.ones(3)
        deviations = ((rows - rows.mean(axis=0)) ** 2).sum(axis=0)
        degrees = _SPREAD_DEGREES + len(rows) - 1
        within = (_SPREAD_DEGREES * self.between_queries**2 + deviations) / degrees
        error = within / len(rows)
        share: Floats = error / (error + self.between_corpora**2)
        return share
