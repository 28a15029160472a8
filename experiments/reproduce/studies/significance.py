"""Is RidgeRank better than another method, query by query? The paper gives no test; these are ours.

The difference is macro, as in the tables: the mean over corpora of mean differences. Its interval comes from
queries drawn again within each corpus (percentile bootstrap), its p value from random signs of the
differences.
"""

from dataclasses import dataclass

import numpy as np

from experiments.reproduce import paper
from experiments.reproduce.analysis import Analysis
from experiments.reproduce.method_results import MethodResult
from experiments.reproduce.studies.weight_rules import validate
from experiments.reproduce.tables.table import Column, Row, Table, text_columns
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


def significance(analysis: Analysis) -> Table:
    """RidgeRank against each method, with intervals."""
    settings = analysis.settings
    rows = []
    for (family, retriever, backbone, key), comparison in compare_all(analysis).items():
        names = (settings.families[family].name, retriever, f"RidgeRank ({backbone})")
        other = analysis.result(family, retriever, key).name
        figures = (
            comparison.difference,
            comparison.low,
            comparison.high,
            comparison.p_value,
            comparison.queries,
        )
        rows.append(Row((*names, other, *figures)))
    for family in range(len(settings.families)):
        for retriever in settings.retrievers:
            for method in analysis.results(family, retriever):
                if not method.by_corpus:
                    where = (settings.families[family].name, retriever)
                    rows.append(Row((*where, "RidgeRank", method.name, *[None] * 5), note=method.why))
    return Table(
        "significance",
        "RidgeRank against every arm, query by query",
        "Differences in nDCG@5, points, macro over corpora. 95 % intervals from queries drawn again within "
        f"each corpus ({RESAMPLES} times); two-sided p from random signs ({PERMUTATIONS} permutations), not "
        "corrected for the number of comparisons.",
        (
            *text_columns("family", "retriever", "ours", "against"),
            Column("difference", "+.2f"),
            Column("from", "+.2f"),
            Column("to", "+.2f"),
            Column("p", ".4f"),
            Column("queries", "d"),
        ),
        tuple(rows),
        ("the paper reports no test",),
    )


def weights(analysis: Analysis) -> Table:
    """Predicted and measured weights."""
    validation = validate(analysis)
    settings = analysis.settings
    rows = [
        Row(
            (
                settings.families[subset.family].name,
                subset.corpus,
                subset.retriever,
                subset.method,
                subset.predicted,
                subset.measured,
                *subset.interval(settings.seed),
                subset.least_partial,
            )
        )
        for subset in validation.subsets
    ]
    published = paper.look_up("text", "sec4.3")
    return Table(
        "weights",
        "§4.3. Predicted and measured weights",
        f"{len(rows)} subsets: the full cross encoder and every readout, on every corpus, behind every "
        "retriever. "
        "Predicted: w* from the subset's own correlations. Measured: the mean of the weights within one "
        "point of the best, with its 95 % interval over queries drawn again.",
        (
            *text_columns("family", "corpus", "retriever", "arm"),
            Column("predicted", ".3f"),
            Column("measured", ".3f"),
            Column("from", ".3f"),
            Column("to", ".3f"),
            Column("least of c_b − ρc_s, c_s − ρc_b", ".3f"),
        ),
        tuple(rows),
        (
            f"correlation of predicted and measured: {validation.correlation:.3f} "
            f"({paper.SOURCE}: {published['correlation']})",
            f"reliability over {settings.splits} random half splits, Spearman–Brown: predicted "
            f"{validation.reliability_predicted:.3f}, measured {validation.reliability_measured:.3f}, their "
            f"geometric mean {validation.ceiling:.3f} ({paper.SOURCE}: {published['reliability_predicted']}, "
            f"{published['reliability_measured']}, {published['ceiling']})",
            f"{validation.interior} of {len(rows)} predicted optima are strictly between 0 and 1; the least "
            f"of c_b − ρc_s and c_s − ρc_b is {validation.least_partial:.3f} ({paper.SOURCE}: "
            f"{published['least_partial']})",
            "of the second family, a subset is the mean over all readouts",
        ),
    )
