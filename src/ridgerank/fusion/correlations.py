"""The three correlations between retriever, reranker and a third vector, query by query (eq. 3).

With relevance as the third vector they are c_b, c_s and ρ; with the full-depth margin in its place they
are what the label-free weight is estimated from. One record serves both.
"""

from dataclasses import dataclass

import numpy as np

from ridgerank.errors import CalibrationError
from ridgerank.fusion.standardize import discounts, standardize, standardize_weighted
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
    skipped: int
    """Queries left out because a score or the third vector is constant in them."""

    @property
    def queries(self) -> int:
        """Number of queries that have correlations."""
        return len(self.mutual)

    def stacked(self) -> Floats:
        """(queries, 3): retriever, reranker, mutual."""
        return np.column_stack([self.retriever, self.reranker, self.mutual])

    def require_queries(self) -> None:
        """Raise where no query is left to estimate anything from."""
        if not self.queries:
            raise CalibrationError(
                f"none of {self.skipped} queries can be used: in each the retriever's scores, the reranker's "
                "scores, or relevance (or the third score) are constant; expected at least one query whose "
                "lists vary"
            )


def correlate(retriever: Floats, reranker: Floats, third: Floats, lists: Ragged) -> Correlations:
    """Eq. 3 for every query, every vector standardized in the inner product the correlation is taken in.

    Positions weigh as the ranking metric's discount under the retriever's order. All vectors (members,).
    """
    varied = varies(lists, retriever, reranker, third)
    kept, members = lists.select(varied)
    omega = discounts(retriever, lists)[members]
    b, s, y = (standardize_weighted(values[members], omega, kept) for values in (retriever, reranker, third))
    total = kept.sum(omega)
    return Correlations(
        retriever=kept.sum(omega * b * y) / total,
        reranker=kept.sum(omega * s * y) / total,
        mutual=kept.sum(omega * b * s) / total,
        skipped=int((~varied).sum()),
    )


def correlation(x: Floats, y: Floats, lists: Ragged) -> Floats:
    """Correlation of two vectors (members,) within each list, (lists,); 0 where one is constant."""
    return lists.sum(standardize(x, lists) * standardize(y, lists)) / lists.lengths


def varies(lists: Ragged, *vectors: Floats) -> Bools:
    """(lists,): not all members of a list are equal, in any of the vectors (members,)."""
    varied: Bools = np.logical_and.reduce([lists.max(each) > lists.min(each) for each in vectors])
    return varied
