"""Table 6: the full cross encoder fused with the retriever, at every weight (§B.2)."""

from statistics import median

import numpy as np

from experiments.protocols.weight_sweep import WeightSweep
from experiments.reproduce import paper
from experiments.reproduce.analysis import Analysis
from experiments.reproduce.studies.weight_validation import sweep_corpus
from experiments.reproduce.tables.table import Column, Row, Table, text_columns

_ROUNDING = 1e-9
"""Points of nDCG@5 that rounding may move a mean."""


def table6(analysis: Analysis) -> Table:
    """Where the best weight lies."""
    settings = analysis.settings
    rows: list[Row] = []
    for family, benchmark in enumerate(settings.families):
        for retriever in settings.retrievers:
            sweeps = [
                sweep_corpus(analysis, corpus_key, retriever, None, 0)
                for corpus_key in analysis.experiment.corpus_keys(family)
            ]
            rows.append(
                Row(
                    (
                        benchmark.name,
                        retriever,
                        len(sweeps),
                        sum(is_best_at_one(sweep) for sweep in sweeps),
                        median(sweep.best for sweep in sweeps),
                        float(np.mean([sweep.means[-1] for sweep in sweeps])),
                        float(np.mean([sweep.means.max() for sweep in sweeps])),
                    )
                )
            )
            names = (paper.FAMILIES[family] if family < 2 else None, paper.model_name(retriever))
            published = paper.look_up("table6", *names)
            if published is not None:
                whole = (int(published["subsets"]), int(published["at_one"]))
                figures = (published["median"], published["ndcg_at_one"], published["ndcg_at_optimum"])
                rows.append(Row((*names, *whole, *figures), source=paper.SOURCE))
    every = [
        sweep_corpus(analysis, corpus_key, retriever, None, 0)
        for corpus_key in analysis.experiment.corpus_keys()
        for retriever in settings.retrievers
    ]
    losses = [float(sweep.means.max() - sweep.means[-1]) for sweep in every]
    ties = sum(is_tied_at_one(sweep) for sweep in every)
    return Table(
        "table6",
        "Table 6. Fusion at full depth",
        "The full cross encoder fused with the retriever at every weight from 0 to 1 in steps of 0.05, each "
        "corpus at its own best.",
        (
            *text_columns("family", "retriever"),
            Column("subsets", "d"),
            Column("best at w = 1", "d"),
            Column("median best w", ".3f"),
            Column("nDCG@5 at w = 1"),
            Column("nDCG@5 at best w"),
        ),
        tuple(rows),
        (
            f"ranking by the cross encoder alone loses {np.mean(losses):.1f} points on average, at most "
            f"{max(losses):.1f} (paper, A100: 1.5 and 4.3)",
            "a subset that attains its best at w = 1 counts as best there, also where a smaller weight is "
            f"as good, as on {ties} of {len(every)}; the best w is the smallest of those",
        ),
    )


def is_best_at_one(sweep: WeightSweep) -> bool:
    """Whether the optimum is attained at w = 1; a smaller weight that is as good does not change that."""
    return bool(sweep.means[-1] >= sweep.means.max() - _ROUNDING)


def is_tied_at_one(sweep: WeightSweep) -> bool:
    """Whether the optimum is attained at w = 1 and at a smaller weight as well."""
    return is_best_at_one(sweep) and bool(sweep.means[:-1].max() >= sweep.means.max() - _ROUNDING)
