"""Tables of ours: paired tests against every method, and §4.3's weights subset by subset."""

from experiments.reproduce import paper
from experiments.reproduce.analysis import Analysis
from experiments.reproduce.studies.significance import PERMUTATIONS, RESAMPLES, compare_all
from experiments.reproduce.studies.weight_validation import validate
from experiments.reproduce.tables.table import Column, Row, Table, text_columns


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
        "each "
        f"corpus ({RESAMPLES} times); two-sided p from random signs ({PERMUTATIONS} permutations), not "
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
        "point of "
        "the best, with its 95 % interval over queries drawn again.",
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
            "geometric mean "
            f"{validation.ceiling:.3f} ({paper.SOURCE}: {published['reliability_predicted']}, "
            f"{published['reliability_measured']}, {published['ceiling']})",
            f"{validation.interior} of {len(rows)} predicted optima are strictly between 0 and 1; the least "
            f"of c_b − ρc_s and c_s − ρc_b is {validation.least_partial:.3f} ({paper.SOURCE}: "
            f"{published['least_partial']})",
            "of the second family, a subset is the mean over all readouts",
        ),
    )
