"""A run in memory: columns, ordered as evaluators order it. Knows no file format and no formula."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self, TypeAlias

import numpy as np

from ridgerank.errors import ScoreError
from ridgerank.ragged import Floats, Ints, Ragged, finite_scores

Qrels: TypeAlias = Mapping[str, Mapping[str, int]]
"""Graded relevance: query id → page id → grade."""


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """Scored pages of many queries, best first; equal scores by page id, last first, as trec_eval does."""

    queries: tuple[str, ...]
    """Query ids, in the order they were given."""
    vocabulary: tuple[str, ...]
    """All page ids of the run, sorted: the order of codes is the order of ids."""
    lists: Ragged
    """One list per query."""
    codes: Ints
    """(members,) index into `vocabulary`."""
    scores: Floats
    """(members,)."""

    @classmethod
    def of_columns(cls, queries: Sequence[str], pages: Sequence[str], scores: Iterable[float]) -> Self:
        """A run from three columns in any order; a page twice under one query is refused."""
        query_numbers: dict[str, int] = {}
        rows = np.fromiter(
            (query_numbers.setdefault(query, len(query_numbers)) for query in queries), np.int64, len(queries)
        )
        vocabulary = tuple(sorted(set(pages)))
        code_of = {page: code for code, page in enumerate(vocabulary)}
        codes = np.fromiter((code_of[page] for page in pages), np.int64, len(pages))
        values = np.fromiter(scores, np.float64, len(pages))
        return cls._ordered(tuple(query_numbers), vocabulary, rows, codes, values)

    @classmethod
    def of_dict(cls, scored: Mapping[str, Mapping[str, float]]) -> Self:
        """A run from query id → page id → score; queries without pages are left out."""
        columns = [(query, page, score) for query, pages in scored.items() for page, score in pages.items()]
        return cls.of_columns([c[0] for c in columns], [c[1] for c in columns], (c[2] for c in columns))

    @classmethod
    def _ordered(
        cls, queries: tuple[str, ...], vocabulary: tuple[str, ...], rows: Ints, codes: Ints, scores: Floats
    ) -> Self:
        key = rows * max(len(vocabulary), 1) + codes
        ascending = np.sort(key)
        repeated = ascending[1:][ascending[1:] == ascending[:-1]]
        if len(repeated):
            query, page = divmod(int(repeated[0]), len(vocabulary))
            raise ScoreError(
                f"page {vocabulary[page]!r} stands twice under query {queries[query]!r}; keep one score"
            )
        lists = Ragged.of_lengths(np.bincount(rows, minlength=len(queries)).tolist())
        order = np.lexsort((-codes, -scores, rows))
        finite = finite_scores(scores[order], lists, what="run")
        return cls(queries, vocabulary, lists, codes[order], finite)

    def __len__(self) -> int:
        return len(self.queries)

    def pages(self, query_number: int) -> list[str]:
        """The page ids of one query, best first."""
        start, end = self.lists.offsets[query_number : query_number + 2]
        return [self.vocabulary[code] for code in self.codes[start:end].tolist()]

    def rows(self) -> Iterator[tuple[str, str, int, float]]:
        """(query id, page id, rank from 1, score), query by query, best first."""
        ranks = (self.lists.positions() + 1).tolist()
        numbers = self.lists.list_numbers().tolist()
        codes, scores = self.codes.tolist(), self.scores.tolist()
        for number, code, rank, score in zip(numbers, codes, ranks, scores, strict=True):
            yield self.queries[number], self.vocabulary[code], rank, score

    def top(self, depth: int) -> Self:
        """Only the best `depth` pages of each query."""
        kept = self.lists.positions() < depth
        lists = Ragged.of_lengths(np.minimum(self.lists.lengths, depth).tolist())
        return type(self)(self.queries, self.vocabulary, lists, self.codes[kept], self.scores[kept])

    def to_dict(self) -> dict[str, dict[str, float]]:
        """Query id → page id → score."""
        scored: dict[str, dict[str, float]] = {query: {} for query in self.queries}
        for query, page, _, score in self.rows():
            scored[query][page] = score
        return scored
