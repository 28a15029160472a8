"""Is RidgeRank better than another method, query by query? The paper gives no test; these are ours.

The difference is macro, as in the tables: the mean over corpora of mean differences. Its interval comes from
queries drawn again within each corpus (percentile bootstrap), its p value from random signs of the
differences.
"""

from dataclasses import dataclass

import numpy as np

from experiments.reproduce.analysis import Analysis
from experiments.reproduce.method_results import MethodResult
from ridgerank.evaluation.metrics import MEASURES
from ridgerank.ragged import Floats

RESAMPLES = 2000
PERMUTATIONS = 9999


@dataclass(frozen=True, slots=True)
class Comparison:
    """RidgeRank minus another method, in points of nDCG@5."""

    difference: float
    low: float
    high: float
    p_value: float
    """Two-sided."""
    queries: int


def compare(ours: MethodResult, other: MethodResult, *, seed: int) -> Comparison:
    """Compare two methods over the same queries."""
    row = MEASURES.index("nDCG@5")
    parts = [
        first.values[row] - second.values[row]
        for first, second in zip(ours.by_corpus, other.by_corpus, strict=True)
    ]
    return compare_differences(parts, seed=seed)


def compare_differences(parts: list[Floats], *, seed: int) -> Comparison:
    """Differences of paired queries, corpus by corpus."""
    from scipy.stats import bootstrap, permutation_test

    # Scaled so that the plain mean of all is the mean over corpora of their means.
    total = sum(len(part) for part in parts)
    scaled = np.concatenate([part * total / (len(parts) * len(part)) for part in parts])
    difference = float(scaled.mean())
    if not scaled.any():
        return Comparison(0.0, 0.0, 0.0, 1.0, total)

    def macro(*drawn: Floats, axis: int = -1) -> Floats:
        means: Floats = np.mean([part.mean(axis=axis) for part in drawn], axis=0)
        return means

    interval = bootstrap(
        tuple(parts), macro, n_resamples=RESAMPLES, vectorized=True, method="percentile", rng=seed
    ).confidence_interval
    tested = permutation_test(
        (scaled,),
        lambda values, axis: values.mean(axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=PERMUTATIONS,
        batch=1000,
        rng=seed,
    )
    return Comparison(difference, float(interval.low), float(interval.high), float(tested.pvalue), total)


def compare_all(analysis: Analysis) -> dict[tuple[int, str, str, str], Comparison]:
    """(family, retriever, backbone, key of a method) → RidgeRank with that backbone against it."""

    def compare_methods() -> dict[tuple[int, str, str, str], Comparison]:
        settings = analysis.settings
        comparisons = {}
        for family in range(len(settings.families)):
            for retriever in settings.retrievers:
                methods = analysis.results(family, retriever)
                for backbone in settings.backbones:
                    ours = analysis.result(family, retriever, f"ours {backbone}")
                    for method in methods:
                        if method.by_corpus and method.key != ours.key:
                            key = (family, retriever, backbone, method.key)
                            comparisons[key] = compare(ours, method, seed=settings.seed)
        return comparisons

    return analysis.cached("significance", compare_methods)
