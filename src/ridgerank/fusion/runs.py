"""Two or more runs become one: aligned by query and page, weighed, fused.

Pages that only some runs score are kept and counted. Weights of three or more runs are given, or come from
judgements by proposition 1 for any number of scores, proved in docs/fusion.md.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import compress
from typing import TypeAlias

import numpy as np

from ridgerank.errors import CalibrationError, ScoreError
from ridgerank.fusion.correlations import varies
from ridgerank.fusion.standardize import (
    discounts,
    fuse_many_scores,
    require_weight,
    standardize,
    standardize_weighted,
)
from ridgerank.ragged import Bools, Floats, Ints, Ragged
from ridgerank.trec import Qrels, Run

RunScores: TypeAlias = Run | Mapping[str, Mapping[str, float]]
"""A run, or query id → page id → score."""
_NEGLIGIBLE = 1e-12
"""Eigenvalues of Σ below this share of the largest are rounding: some scores are combinations of others."""


@dataclass(frozen=True, slots=True, eq=False)
class JoinedRuns:
    """All pages of all runs, query by query; within a query by page id, last first, as runs break ties."""

    queries: tuple[str, ...]
    vocabulary: tuple[str, ...]
    lists: Ragged
    codes: Ints
    """(members,) index into `vocabulary`."""
    scores: Floats
    """(runs, members), NaN where a run lacks the page."""

    @property
    def present(self) -> Bools:
        """(runs, members): the run scores the page."""
        return ~np.isnan(self.scores)

    def missing(self) -> list[tuple[int, int]]:
        """Of each run: queries of which it has no page at all, and pages it lacks under the others."""
        counts = []
        for row in self.present:
            lacks = self.lists.sum(row.astype(float)) == 0
            counts.append((int(lacks.sum()), int((~row).sum() - self.lists.lengths[lacks].sum())))
        return counts

    def complete(self) -> "JoinedRuns":
        """Only the pages that every run scores; queries left without any are dropped."""
        everywhere = self.present.all(axis=0)
        if everywhere.all():
            return self
        lengths = self.lists.sum(everywhere.astype(float)).astype(np.int64)
        queries = tuple(compress(self.queries, lengths))
        lists = Ragged.of_lengths(lengths[lengths > 0].tolist())
        return JoinedRuns(queries, self.vocabulary, lists, self.codes[everywhere], self.scores[:, everywhere])

    def relevance(self, qrels: Qrels) -> Floats:
        """(members,) graded relevance; an unjudged page is not relevant, nor is one graded below 0."""
        judged = [qrels.get(query, {}) for query in self.queries]
        members = zip(self.lists.list_numbers().tolist(), self.codes.tolist(), strict=True)
        grades = [max(judged[number].get(self.vocabulary[code], 0), 0) for number, code in members]
        return np.array(grades, dtype=np.float64)


def join(*runs: Run) -> JoinedRuns:
    """Align runs by query and page; queries in the order in which they first appear."""
    queries = tuple(dict.fromkeys(query for run in runs for query in run.queries))
    vocabulary = tuple(sorted({page for run in runs for page in run.vocabulary}))
    keys, scores = zip(*(_sort_by_key(run, queries, vocabulary) for run in runs), strict=True)
    if all(np.array_equal(keys[0], other) for other in keys[1:]):
        union, aligned = keys[0], np.vstack(scores)
    else:
        union = reduce(np.union1d, keys)
        aligned = np.full((len(runs), len(union)), np.nan)
        for row, run_keys, run_scores in zip(aligned, keys, scores, strict=True):
            row[np.searchsorted(union, run_keys)] = run_scores
    rows, reversed_codes = np.divmod(union, max(len(vocabulary), 1))
    lists = Ragged.of_lengths(np.bincount(rows, minlength=len(queries)).tolist())
    return JoinedRuns(queries, vocabulary, lists, len(vocabulary) - 1 - reversed_codes, aligned)


def fuse(
    retriever: RunScores, reranker: RunScores, *others: RunScores, weight: float | Sequence[float]
) -> dict[str, dict[str, float]]:
    """Fuse two or more runs, query id → page id → score each, eq. 2.

    For two runs `weight` is a number from 0 (retriever) to 1 (reranker); for more it has one number per run,
    scaled to add up to 1. Each query's pages come back best first. A page that not all runs score follows
    below those that all score, as in `fuse_runs`.
    """
    runs = (each if isinstance(each, Run) else Run.of_dict(each) for each in (retriever, reranker, *others))
    return fuse_runs(join(*runs), weight).to_dict()


def fuse_runs(joined: JoinedRuns, weight: float | Sequence[float]) -> Run:
    """Eq. 2 over all runs: a number weighs the second of two runs, a sequence has one weight per run.

    A page that some runs lack is not given scores it never got: it follows below, pages that fewer runs lack
    first. Pages lacked by equally many are in the order of the first run that has them, the retriever's
    first, and then by the runs that do have them.
    """
    lists, present, runs = joined.lists, joined.present, len(joined.scores)
    if isinstance(weight, (int, float)):
        if runs != 2:
            raise ScoreError(f"one weight for {runs} runs, expected one number per run")
        require_weight(weight)
        weight = (1.0 - weight, weight)
    weights = np.asarray(weight, dtype=np.float64)
    everywhere, scores = present.all(axis=0), np.zeros(lists.members)
    if everywhere.any():
        shared = joined.complete()
        scores[everywhere] = fuse_many_scores(shared.scores, weights, shared.lists)
    if not everywhere.all():
        scores[~everywhere] = _fuse_present(joined, weights)[~everywhere]
    tier = (runs - present.sum(axis=0)) * runs + np.where(everywhere, 0, present.argmax(axis=0))
    # Stable: equal scores stay by page id, last first.
    order = np.lexsort((-scores, tier, lists.list_numbers()))
    ordered, fused = scores[order], tier[order] == 0
    fused_pages = lists.sum(fused.astype(float))
    lowest = np.where(fused_pages > 0, lists.min(np.where(fused, ordered, np.inf)), 0.0)
    steps = lists.positions() - lists.repeat(fused_pages) + 1.0  # lower tiers count down from the lowest
    final = np.where(fused, ordered, lists.repeat(lowest) - steps)
    return Run(joined.queries, joined.vocabulary, lists, joined.codes[order], final)


def _fuse_present(joined: JoinedRuns, weights: Floats) -> Floats:
    """(members,): each page by the runs that have it, each run standardized over its own pages."""
    total, share = np.zeros(joined.lists.members), np.zeros(joined.lists.members)
    # A run of weight 0 still orders the pages that only it has.
    least = np.maximum(weights, 1e-9)
    for row, has_page, run_weight in zip(joined.scores, joined.present, least.tolist(), strict=True):
        lengths = joined.lists.sum(has_page.astype(float)).astype(np.int64)
        lists = Ragged.of_lengths(lengths[lengths > 0].tolist())
        total[has_page] += run_weight * standardize(row[has_page], lists)
        share[has_page] += run_weight
    return total / share


def _sort_by_key(run: Run, queries: tuple[str, ...], vocabulary: tuple[str, ...]) -> tuple[Ints, Floats]:
    """One ascending whole number per (query, page), pages last first, and the scores in that order."""
    numbers = {query: number for number, query in enumerate(queries)}
    rows = np.array([numbers[query] for query in run.queries], dtype=np.int64)
    codes = run.codes
    if run.vocabulary != vocabulary:
        known = {page: code for code, page in enumerate(vocabulary)}
        codes = np.array([known[page] for page in run.vocabulary], dtype=np.int64)[run.codes]
    keys = np.repeat(rows, run.lists.lengths) * len(vocabulary) + (len(vocabulary) - 1 - codes)
    order = np.argsort(keys)
    return keys[order], run.scores[order]


def judged_weights(scores: Floats, relevance: Floats, lists: Ragged) -> tuple[Floats, int]:
    """The weights of highest correlation with relevance, (scores,), and how many queries they rest on.

    Scores are (scores, members), relevance (members,). Correlations (eq. 3) are averaged over the queries in
    which no score and no relevance is constant.
    """
    columns = np.vstack([scores, relevance])
    kept, members = lists.select(varies(lists, *columns))
    if not len(kept):
        raise CalibrationError(
            f"none of {len(lists)} queries can be used: in each a score or relevance is constant; expected "
            "at least one query whose lists vary"
        )
    omega = discounts(scores[0], lists)[members]
    z = np.column_stack([standardize_weighted(column[members], omega, kept) for column in columns])
    products = omega[:, None, None] * z[:, :, None] * z[:, None, :]
    correlations = (kept.sum(products) / kept.sum(omega)[:, None, None]).mean(axis=0)
    return optimal_weights(correlations[:-1, -1], correlations[:-1, :-1]), len(kept)


def optimal_weights(relevance: Floats, mutual: Floats) -> Floats:
    """(scores,): the weights w of highest correlation c'w / √(w'Σw); not negative, they add up to 1.

    c (scores,) are the scores' correlations with relevance, Σ (scores, scores) those with each other. The
    weights minimize w'Σw − 2c'w over w ≥ 0, non-negative least squares ‖Fw − F⁻ᵀc‖ with F'F = Σ. If no score
    agrees with relevance, the least wrong one is best alone.
    """
    best_alone = np.zeros(len(relevance))
    best_alone[int(np.argmax(relevance))] = 1.0
    if not relevance.max() > 0:
        return best_alone
    from scipy.optimize import nnls  # here, so that only those who weigh many runs pay for loading it

    eigenvalues, vectors = np.linalg.eigh(mutual)
    kept = eigenvalues > _NEGLIGIBLE * eigenvalues[-1]
    roots = np.sqrt(eigenvalues[kept])
    factor = roots[:, None] * vectors[:, kept].T
    solution, _ = nnls(factor, (vectors[:, kept].T @ relevance) / roots)
    total = solution.sum()
    weights: Floats = solution / total if total > 0 else best_alone
    return weights
