"""Queries with their candidates and scores: what a weight is estimated from, kept with a calibration.

With these at hand the weight is estimated again in a moment, from other judgements, without any model.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ridgerank.ragged import Bools, Floats, Ragged
from ridgerank.records import Candidate, Query, ScoredPages

LENGTHS, SCORES, PREDICTED = "list_lengths", "list_scores", "list_predicted"
"""Tensors of a calibration's file."""
NAMES = "list_names"
"""An entry of its metadata."""


@dataclass(frozen=True, slots=True, eq=False)
class ScoreLists:
    """The lists a readout was fitted on, with scores of readouts that were fitted without them."""

    queries: tuple[Query, ...]
    page_ids: tuple[str, ...]
    """(members,)."""
    lists: Ragged
    retriever: Floats
    """(members,): b."""
    readout: Floats
    """(members,): s, held out."""
    targets: Floats
    """(members,): t."""
    predicted: Floats | None = None
    """(members,): t̂, held out; None in a calibration of an older release."""

    @classmethod
    def of_candidates(
        cls,
        candidates: Mapping[Query, Sequence[Candidate]],
        members: Bools,
        retriever: Floats,
        readout: Floats,
        targets: Floats,
        predicted: Floats | None = None,
    ) -> Self:
        """The lists that are marked in `members`, of all candidates laid end to end."""
        every = Ragged.of_lengths(len(pages) for pages in candidates.values())
        varied = members[every.offsets[:-1]]
        page_ids = [candidate.page_id for pages in candidates.values() for candidate in pages]
        return cls(
            queries=tuple(query for query, kept in zip(candidates, varied, strict=True) if kept),
            page_ids=tuple(page for page, kept in zip(page_ids, members, strict=True) if kept),
            lists=every.select(varied)[0],
            retriever=retriever,
            readout=readout,
            targets=targets,
            predicted=predicted,
        )

    def by_query(self) -> dict[str, ScoredPages]:
        """The text of each query → its candidates."""
        return {query.text: pages for query, pages in zip(self.queries, self._pages(), strict=True)}

    def _pages(self) -> Iterator[ScoredPages]:
        for start, end in pairwise(self.lists.offsets.tolist()):
            yield ScoredPages(
                self.page_ids[start:end],
                tuple(self.retriever[start:end].tolist()),
                tuple(self.readout[start:end].tolist()),
                None if self.predicted is None else tuple(self.predicted[start:end].tolist()),
            )

    def tensors(self) -> dict[str, NDArray[Any]]:
        """What a calibration's file holds of them."""
        scores = np.stack([self.retriever, self.readout, self.targets])
        tensors = {LENGTHS: self.lists.lengths, SCORES: scores}
        return tensors if self.predicted is None else tensors | {PREDICTED: self.predicted}

    def names(self) -> str:
        """What its metadata holds of them."""
        queries = [[query.query_id, query.text] for query in self.queries]
        return json.dumps({"queries": queries, "pages": self.page_ids}, ensure_ascii=False)

    @classmethod
    def from_file(cls, tensors: Mapping[str, Floats], names: str) -> Self:
        """The inverse of `tensors` and `names`."""
        listed = json.loads(names)
        retriever, readout, targets = np.asarray(tensors[SCORES], dtype=np.float64)
        return cls(
            queries=tuple(Query(query_id, text) for query_id, text in listed["queries"]),
            page_ids=tuple(listed["pages"]),
            lists=Ragged.of_lengths(tensors[LENGTHS].astype(np.int64).tolist()),
            retriever=retriever,
            readout=readout,
            targets=targets,
            predicted=np.asarray(tensors[PREDICTED], dtype=np.float64) if PREDICTED in tensors else None,
        )
