"""GQR under every setting its authors try, and which setting a corpus gets: the best on the next corpus.

The authors choose on a tenth of each corpus' own queries. The paper sets every baseline on the inner corpus
that sets RidgeRank's weight, so that no corpus contributes judgements to its own ranking; so do we.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from experiments.baselines.gqr import GRID
from experiments.datasets.base import BenchmarkCorpus
from experiments.protocols.scored_corpus import next_in_cycle
from experiments.reproduce.stages.baseline_scores import BaselineScores
from ridgerank.evaluation.metrics import MEASURES, evaluate
from ridgerank.ragged import Floats
from ridgerank.trec import Run


def refined_run(
    baseline: BaselineScores, corpus: BenchmarkCorpus, references: Mapping[str, str], setting: int
) -> Run:
    """The pool ranked by the query as a setting refined it."""
    rows, columns = np.nonzero(np.isfinite(baseline.scores[:, 0]))
    query_ids = [corpus.queries[row].query_id for row in rows.tolist()]
    pages = [references[page_id] for page_id in baseline.page_ids[rows, columns].tolist()]
    return Run.of_columns(query_ids, pages, baseline.scores[rows, setting, columns].tolist())


def evaluate_refinements(run_of: Callable[[int], Run], corpus: BenchmarkCorpus) -> Floats:
    """(settings, measures, queries), percent; `run_of` has the run of each setting."""
    return np.stack([evaluate(run_of(setting), corpus.qrels).values for setting in range(len(GRID))])


def choose_refinements(by_setting: Sequence[Floats]) -> list[int]:
    """The number of the setting each corpus is ranked with: the first of the best by nDCG@5 on the next."""
    row = MEASURES.index("nDCG@5")
    best = [int(np.argmax(values[:, row].mean(axis=1))) for values in by_setting]
    return [next_in_cycle(best, number) for number in range(len(best))]


def describe_refinements(corpora: Sequence[str], chosen: Sequence[int]) -> str:
    """The learning rate and steps of every corpus, in words."""
    settings = [
        f"{corpus} {GRID[number][0]:g} and {GRID[number][1]}"
        for corpus, number in zip(corpora, chosen, strict=True)
    ]
    return f"GQR's learning rate and steps, the best by nDCG@5 on the next corpus: {', '.join(settings)}"
