"""How good and how slow a method is: on one corpus, and over the corpora of a family.

GQR's authors choose its settings on a tenth of each corpus' own queries. The paper sets every baseline on the
inner corpus that sets RidgeRank's weight, so that no corpus contributes judgements to its own ranking.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from experiments.baselines.gqr import GRID
from experiments.datasets.base import BenchmarkCorpus
from experiments.protocols import Fusion, ScoredCorpus, next_in_cycle
from experiments.reproduce.stages.baseline_scores import BaselineScores
from ridgerank.evaluation.metrics import MEASURES, evaluate
from ridgerank.fusion.standardize import fuse_scores
from ridgerank.ragged import Floats
from ridgerank.trec import Run

RESAMPLES = 2000


@dataclass(frozen=True, slots=True, eq=False)
class CorpusResult:
    """One method on one corpus."""

    values: Floats
    """(measures, queries), percent; the mean over readouts where there are several."""
    weight: float
    """w, the mean over readouts where there are several; NaN where nothing is fused."""
    runs: tuple[Run, ...]
    """What was ranked, by each readout where there are several."""

    def mean(self, measure: str = "nDCG@5") -> float:
        """The mean over queries of one measure."""
        return float(self.values[MEASURES.index(measure)].mean())


@dataclass(frozen=True, slots=True, eq=False)
class MethodLatency:
    """Mean milliseconds per query, over the queries of a family that were timed."""

    retrieval_ms: float
    reading_ms: float
    compute_ms: float
    samples_ms: Floats
    """(timed queries,): the whole time of each."""

    @property
    def total_ms(self) -> float:
        """The sum."""
        return self.retrieval_ms + self.reading_ms + self.compute_ms

    def redraw(self, seed: int) -> Floats:
        """(resamples,): the total when the timed queries are drawn again with replacement."""
        count = len(self.samples_ms)
        shares = np.random.default_rng(seed).multinomial(count, np.full(count, 1.0 / count), size=RESAMPLES)
        totals: Floats = shares @ self.samples_ms / count
        return totals


def interval_95(draws: Floats) -> tuple[float, float]:
    """The middle 95 % of the draws."""
    low, high = np.quantile(draws, [0.025, 0.975])
    return float(low), float(high)


def measure_latency(
    retrieval_ms: Floats, compute_ms: Floats, reading_ms: Floats | None = None
) -> MethodLatency:
    """From the times of every query, (queries,) each, in one order; NaN where a query was not timed."""
    reading = np.zeros_like(compute_ms) if reading_ms is None else reading_ms
    timed = ~np.isnan(compute_ms)
    return MethodLatency(
        float(retrieval_ms.mean()),
        float(reading[timed].mean()),
        float(compute_ms[timed].mean()),
        (retrieval_ms + reading + compute_ms)[timed],
    )


@dataclass(frozen=True, slots=True, eq=False)
class MethodResult:
    """One method over the corpora of a family behind one retriever; without results it says why."""

    key: str
    """What it is in the paper: the role of a baseline, or `ours` and a backbone."""
    name: str
    by_corpus: tuple[CorpusResult, ...]
    latency: MethodLatency | None
    why: str = ""
    remark: str = ""
    """What was chosen for it, where that is not a weight."""

    def macro(self, measure: str = "nDCG@5") -> float:
        """The mean over corpora of a measure."""
        return float(np.mean([result.mean(measure) for result in self.by_corpus]))


def evaluate_fused(
    corpora: Sequence[ScoredCorpus],
    scores: Sequence[Floats],
    weights: Sequence[float],
    fusion: Fusion = fuse_scores,
) -> tuple[CorpusResult, ...]:
    """Fuse the scores of each corpus with its retriever's at its weight, and evaluate."""
    return tuple(
        evaluate_scores(scored, fusion(scored.retriever, values, weight, scored.lists), weight)
        for scored, values, weight in zip(corpora, scores, weights, strict=True)
    )


def evaluate_scores(scored: ScoredCorpus, scores: Floats, weight: float) -> CorpusResult:
    """Candidates ordered by `scores`, and the weight they were fused at."""
    run = scored.run(scores)
    return CorpusResult(evaluate(run, scored.qrels).values, weight, (run,))


def mean_over_readouts(by_readout: Sequence[Sequence[CorpusResult]]) -> tuple[CorpusResult, ...]:
    """(readouts, corpora) → (corpora,): the mean of measures and weights."""
    return tuple(
        CorpusResult(
            np.mean([result.values for result in of_corpus], axis=0),
            float(np.mean([result.weight for result in of_corpus])),
            tuple(run for result in of_corpus for run in result.runs),
        )
        for of_corpus in zip(*by_readout, strict=True)
    )


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


class Comparison(NamedTuple):
    """RidgeRank minus another method, in points of nDCG@5."""

    difference: float
    low: float
    high: float
    queries: int


def compare_differences(parts: list[Floats], *, seed: int) -> Comparison:
    """The mean over corpora of paired differences, with 95 % over queries drawn again within each."""
    generator, sizes = np.random.default_rng(seed), [len(part) for part in parts]
    draws = [generator.multinomial(size, np.full(size, 1 / size), size=RESAMPLES) / size for size in sizes]
    means = np.mean([drawn @ part for drawn, part in zip(draws, parts, strict=True)], axis=0)
    return Comparison(float(np.mean([part.mean() for part in parts])), *interval_95(means), sum(sizes))
