"""A corpus with everything that protocols compare: candidates, their scores, states and judgements."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from ridgerank.evaluation.metrics import MEASURES, Evaluation, evaluate
from ridgerank.fusion.standardize import fuse_scores
from ridgerank.ragged import Floats, Ragged
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
