"""The three correlations between retriever, reranker and a third vector, query by query (eq. 3).

With relevance as the third vector they are c_b, c_s and ρ; with the full-depth margin in its place they
are what the label-free weight is estimated from. One record serves both.
"""

from dataclasses import dataclass

import numpy as np

from ridgerank.errors import CalibrationError
from ridgerank.fusion.standardize import discounts, standardize_weighted
from ridgerank.ragged import Bools, Floats, Ragged


@dataclass(frozen=True, slots=True, eq=False)
class Correlations:
    """Correlations of each query whose lists vary: (queries,) each."""

    retriever: Floats
    """Of the retriever's score with the third vector: c_b when that is relevance."""
    reranker: Floats
    """Of the reranker's score with the third vector: c_s when that is relevance."""
    mutual: Floats
    """Of the two scores with each other: ρ."""
    constant_retriever: int
    """Queries left out because the retriever's scores are all equal (a list of one is)."""
    constant_reranker: int
    """Queries left out because the reranker's scores are all equal."""
    constant_third: int
    """Queries left out because the third vector is constant: no page, or every page, is relevant."""

    @property
    def queries(self) -> int:
        """Number of queries that have correlations."""
        return len(self.mutual)

    @property
    def skipped(self) -> int:
        """Number of queries that were left out."""
        return self.constant_retriever + self.constant_reranker + self.constant_third

    def stacked(self) -> Floats:
        """(queries, 3): retriever, reranker, mutual."""
        return np.column_stack([self.retriever, self.reranker, self.mutual])

    def require_queries(self) -> None:
        """Raise where no query is left to estimate anything from."""
        if not self.queries:
            raise CalibrationError(
                f"none of {self.skipped} queries can be used: the retriever's scores are constant in "
                f"{self.constant_retriever}, the reranker's in {self.constant_reranker}, relevance (or the "
                f"third score) in {self.constant_third}; expected at least one query whose lists vary"
            )


def correlate(
    retriever: Floats, reranker: Floats, third: Floats, lists: Ragged, *, discounted: bool = True
) -> Correlations:
    """Eq. 3 for every query, every vector standardized in the inner product the correlation is taken in.

    `discounted` weighs positions by the ranking metric's discount under the retriever's order (what the
    paper deploys); otherwise all positions count alike. All vectors (members,).
    """
    weights = discounts(retriever, lists) if discounted else np.ones(lists.members)
    flat_retriever, flat_reranker, flat_third = (
        is_constant(values, lists) for values in (retriever, reranker, third)
    )
    varied = ~(flat_retriever | flat_reranker | flat_third)
    kept, members = lists.select(varied)
    omega = weights[members]
    b, s, y = (standardize_weighted(values[members], omega, kept) for values in (retriever, reranker, third))
    total = kept.sum(omega)
    return Correlations(
        retriever=kept.sum(omega * b * y) / total,
        reranker=kept.sum(omega * s * y) / total,
        mutual=kept.sum(omega * b * s) / total,
        constant_retriever=int(flat_retriever.sum()),
        constant_reranker=int((flat_reranker & ~flat_retriever).sum()),
        constant_third=int((flat_third & ~flat_retriever & ~flat_reranker).sum()),
    )


def correlation(x: Floats, y: Floats, lists: Ragged, *, weights: Floats | None = None) -> Floats:
    """Correlation of two vectors within each list: (members,) twice → (lists,); 0 where one is constant.

    All members count alike, or by their `weights` (members,).
    """
    omega = np.ones(lists.members) if weights is None else weights
    product = standardize_weighted(x, omega, lists) * standardize_weighted(y, omega, lists)
    return lists.sum(omega * product) / lists.sum(omega)


def is_constant(values: Floats, lists: Ragged) -> Bools:
    """(lists,): all members of a list are equal."""
    return np.asarray(lists.max(values) == lists.min(values))
