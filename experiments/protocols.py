"""How §4 evaluates: corpora left out in turn, weights from the next corpus or a grid, agreement.

Every function here takes arrays and returns arrays or records; none loads a model or reads a file.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias, TypeVar

import numpy as np

from ridgerank.evaluation.metrics import MEASURES, Evaluation, evaluate
from ridgerank.fusion.correlations import correlate, correlation
from ridgerank.fusion.standardize import fuse_scores
from ridgerank.fusion.weight import optimal_weight
from ridgerank.ragged import Floats, Ragged
from ridgerank.readout import (
    PENALTIES,
    CenteredMoments,
    PenaltyChoice,
    choose_penalty,
    deploy_modal,
    merge_moments,
    nested_folds,
    ridge_path,
)
from ridgerank.trec import Qrels, Run

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True, eq=False)
class ScoredCorpus:
    """The candidate lists of a corpus' queries, laid end to end; arrays are (candidates, …)."""

    corpus: str
    queries: tuple[str, ...]
    """Query ids, one per list."""
    pages: tuple[str, ...]
    """Page of every candidate."""
    lists: Ragged
    retriever: Floats
    margins: Floats
    """t: yes − no at full depth over the uncompressed page."""
    states: Floats
    """(candidates, dim): at the exit layer over the stored page."""
    lens: Floats
    """The logit lens of the states."""
    qrels: Qrels

    @property
    def relevance(self) -> Floats:
        """The grade of every candidate."""
        query_of = self.lists.list_numbers().tolist()
        graded = zip(query_of, self.pages, strict=True)
        return np.array([self.qrels[self.queries[number]].get(page, 0) for number, page in graded], float)

    def evaluate(self, scores: Floats, measures: tuple[str, ...] = MEASURES) -> Evaluation:
        """Every measure of every query when candidates are ordered by `scores`."""
        return evaluate(self.run(scores), self.qrels, measures)

    def run(self, scores: Floats) -> Run:
        """The candidates with these scores."""
        query_ids = [self.queries[number] for number in self.lists.list_numbers().tolist()]
        return Run.of_columns(query_ids, self.pages, scores.tolist())

    def ndcg(self, scores: Floats) -> Floats:
        """(queries,) nDCG@5 in percent when candidates are ordered by `scores`."""
        return self.evaluate(scores, ("nDCG@5",)).of("nDCG@5")

    def fused_ndcg(self, scores: Floats, weight: float) -> Floats:
        """(queries,) nDCG@5 in percent when `scores` are fused with the retriever's (eq. 2)."""
        return self.ndcg(fuse_scores(self.retriever, scores, weight, self.lists))

    def take(self, numbers: Sequence[int]) -> "ScoredCorpus":
        """Some of the queries, in the order of their numbers given."""
        offsets = self.lists.offsets
        members = np.concatenate([np.arange(offsets[n], offsets[n + 1]) for n in numbers])
        names = tuple(self.queries[n] for n in numbers)
        return ScoredCorpus(
            corpus=self.corpus,
            queries=names,
            pages=tuple(self.pages[member] for member in members.tolist()),
            lists=Ragged.of_lengths(self.lists.lengths[list(numbers)].tolist()),
            retriever=self.retriever[members],
            margins=self.margins[members],
            states=self.states[members],
            lens=self.lens[members],
            qrels={name: self.qrels[name] for name in names},
        )


def next_in_cycle(corpora: Sequence[Item], number: int) -> Item:
    """What belongs to the corpus that a corpus' weight is read on."""
    return corpora[(number + 1) % len(corpora)]


GRID: Floats = np.linspace(0.0, 1.0, 21)
"""Step 0.05, as in the paper's table of full-depth fusion."""


@dataclass(frozen=True, slots=True, eq=False)
class WeightSweep:
    """Quality at each weight of a grid."""

    weights: Floats
    quality: Floats
    """(weights, queries), NDCG@5 in percent."""

    @property
    def means(self) -> Floats:
        """(weights,) mean over queries."""
        return np.asarray(self.quality.mean(axis=1))

    @property
    def best(self) -> float:
        """The weight of highest mean; of equally good ones the smallest, nearest the retriever."""
        return float(self.weights[int(np.argmax(self.means))])

    @property
    def optimum(self) -> float:
        """The empirical optimum of §4.3: the mean of the weights within one point of the best."""
        means = self.means
        return float(self.weights[means >= means.max() - 1.0].mean())


def sweep_weights(quality_at: Callable[[float], Floats], weights: Floats = GRID) -> WeightSweep:
    """Evaluate every weight; `quality_at` gives nDCG@5 of every query (queries,) at a weight."""
    return WeightSweep(weights, np.stack([quality_at(float(weight)) for weight in weights]))


Fusion: TypeAlias = Callable[[Floats, Floats, float, Ragged], Floats]
"""Retriever scores, other scores (both (candidates,)), weight of the others, lists → fused scores."""
WeightRule: TypeAlias = Callable[[ScoredCorpus, Floats], float]
"""A corpus and the scores of its candidates (candidates,) → the weight of these scores."""


def closed_form_weight(scored: ScoredCorpus, scores: Floats) -> float:
    """w* of eq. 4 from the correlations averaged over a corpus' queries, with its judgements."""
    correlations = correlate(scored.retriever, scores, scored.relevance, scored.lists)
    correlations.require_queries()
    c_b, c_s, rho = correlations.stacked().mean(axis=0)
    return float(optimal_weight(c_b, c_s, rho))


def best_weight(fusion: Fusion) -> WeightRule:
    """The rule that takes the weight of highest mean nDCG@5; of equally good ones the smallest."""

    def sweep(scored: ScoredCorpus, scores: Floats) -> float:
        return sweep_weights(
            lambda weight: scored.ndcg(fusion(scored.retriever, scores, weight, scored.lists))
        ).best

    return sweep


def cyclic_weights(
    corpora: Sequence[ScoredCorpus], scores: Sequence[Floats], rule: WeightRule = closed_form_weight
) -> list[float]:
    """The weight each corpus is ranked with: that of the one after it; after the last comes the first."""
    weights = [rule(scored, values) for scored, values in zip(corpora, scores, strict=True)]
    return [next_in_cycle(weights, number) for number in range(len(corpora))]


@dataclass(frozen=True, slots=True, eq=False)
class FoldReadouts:
    """The readouts of one backbone, in the order of the corpora each leaves out."""

    choice: PenaltyChoice
    """λ by the teacher's rule: in each fold, and the modal one that is deployed."""
    vectors: Floats
    """(corpora, dim)."""


def corpus_moments(sample: ScoredCorpus) -> CenteredMoments:
    """The sums that the fit needs of one corpus."""
    moments = CenteredMoments(sample.states.shape[1])
    for start, end in pairwise(sample.lists.offsets.tolist()):
        moments.add(sample.states[start:end], sample.margins[start:end])
    return moments


def fit_fold_readouts(samples: Sequence[ScoredCorpus]) -> FoldReadouts:
    """Leave each corpus out in turn, all at the λ that most folds choose."""
    moments = {sample.corpus: corpus_moments(sample) for sample in samples}
    choice = choose_penalty(moments)
    return FoldReadouts(choice, fit_without_each(moments, dict.fromkeys(moments, choice.deployed)))


def fit_without_each(moments: Mapping[str, CenteredMoments], penalties: Mapping[str, float]) -> Floats:
    """(corpora, dim): for each corpus the readout fitted on all others, at the λ given for that corpus."""
    fitted = [
        ridge_path(
            merge_moments(moments, [name for name in moments if name != left_out]),
            np.array([penalties[left_out]]),
        )[0]
        for left_out in moments
    ]
    return np.stack(fitted)


def readouts_for(family: int, number: int, corpora: int) -> tuple[int, ...]:
    """Which readouts score a corpus: of the calibrating family the one that left it out, else all of them."""
    return (number,) if family == 0 else tuple(range(corpora))


def choose_penalty_by_relevance(
    samples: Sequence[ScoredCorpus], *, weight: float, penalties: Floats = PENALTIES
) -> PenaltyChoice:
    """In each fold the λ whose fused ranking has the highest NDCG@5 on the validation corpus."""
    lambdas = np.sort(np.asarray(penalties, dtype=np.float64))
    corpora = {sample.corpus: sample for sample in samples}
    moments = {sample.corpus: corpus_moments(sample) for sample in samples}
    losses = {}
    for held_out, validation, fitted in nested_folds(list(corpora)):
        path = ridge_path(merge_moments(moments, fitted), lambdas)
        losses[held_out] = -_quality(corpora[validation], path, weight)
    return deploy_modal(lambdas, losses)


def _quality(sample: ScoredCorpus, readouts: Floats, weight: float) -> Floats:
    """NDCG@5 of the fused ranking for each readout: (readouts, dim) → (readouts,)."""
    scores = readouts @ sample.states.T
    return np.array([sample.fused_ndcg(row, weight).mean() for row in scores])


@dataclass(frozen=True, slots=True, eq=False)
class Agreement:
    """Correlations within each list where scores, targets and relevance all vary: (lists,) each."""

    teacher: Floats
    """r: of the readout's score with the teacher's margin."""
    teacher_relevance: Floats
    """c_t: of the margin with relevance."""
    relevance: Floats
    """c_s: of the readout's score with relevance."""

    @property
    def floor(self) -> Floats:
        """What r and c_t guarantee of c_s, eq. 11; c_s is never below it."""
        return relevance_floor(self.teacher, self.teacher_relevance)


def relevance_floor(agreement: Floats, teacher_relevance: Floats) -> Floats:
    """c_s ≥ r·c_t − √((1 − r²)(1 − c_t²)), eq. 11: the least correlation with relevance that r allows.

    r: correlation of the readout's score with the full-depth margin; c_t: of that margin with relevance.
    """
    r, c_t = agreement, teacher_relevance
    slack = np.sqrt(np.maximum(1.0 - r**2, 0.0) * np.maximum(1.0 - c_t**2, 0.0))
    floor: Floats = r * c_t - slack
    return floor


def measure_agreement(scores: Floats, targets: Floats, relevance: Floats, lists: Ragged) -> Agreement:
    """Correlate readout scores, teacher margins and relevance, (members,) each, within their lists."""
    varied = np.logical_and.reduce([lists.max(v) > lists.min(v) for v in (scores, targets, relevance)])
    kept, members = lists.select(varied)
    s, t, y = (values[members] for values in (scores, targets, relevance))
    return Agreement(correlation(s, t, kept), correlation(t, y, kept), correlation(s, y, kept))


def recovery(retriever: float, ridgerank: float, cross_encoder: float) -> float:
    """The share of the cross encoder's gain over the retriever that is kept, in percent."""
    return 100.0 * (ridgerank - retriever) / (cross_encoder - retriever)


def draw_queries(population: int, size: int, *, count: int, seed: int) -> list[list[int]]:
    """`count` samples of `size` numbers below `population` without replacement, each ascending."""
    generator = np.random.default_rng([seed, population, size])
    return [
        sorted(generator.choice(population, size=min(size, population), replace=False).tolist())
        for _ in range(count)
    ]
