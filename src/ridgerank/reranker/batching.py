"""The states of candidate lists: which lists share a pass, and which are cut into several."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ridgerank.ragged import Floats
from ridgerank.records import State
from ridgerank.reranker.candidates import CandidateList
from ridgerank.scoring.shallow import ShallowPass

PAGES_PER_PASS = 64
"""More candidates than this run in several passes: memory grows with the pages of a pass."""
MIN_SHARED_PAGES = 8
"""Fewer candidates run in a pass of their own: products of few rows are summed in another order."""
PASS_ENTRIES = PAGES_PER_PASS * 256 * (256 + 1280)
"""Entries of the attention matrix of one head in one pass: those of `PAGES_PER_PASS` pages of 1,280 positions
for a query of 256 tokens. A longer query runs over fewer pages at once: its matrix grows with its square."""


def pages_per_pass(query_tokens: int, positions: int) -> int:
    """How many pages of `positions` a query of `query_tokens` runs over at once, one at the least."""
    entries = query_tokens * (query_tokens + positions)
    return max(1, min(PAGES_PER_PASS, PASS_ENTRIES // max(1, entries)))


@dataclass(frozen=True, slots=True, eq=False)
class ListStates:
    """The states of one list, (candidates, width) in float64, and the time they took."""

    states: Floats
    reading_ms: float
    compute_ms: float


class PassBatcher:
    """Runs candidate lists over one store; the state is read where the calibration says."""

    def __init__(self, shallow: ShallowPass, state: State) -> None:
        self._shallow = shallow
        self._state: State = state

    def run(
        self, lists: Sequence[CandidateList], *, before_pass: Callable[[], None] = lambda: None
    ) -> list[ListStates | None]:
        """States of each list, None where it is empty; what `before_pass` raises ends the work."""
        states: list[ListStates | None] = [None] * len(lists)
        for group in self._group(lists):
            if len(group) == 1:
                states[group[0]] = self._run_alone(lists[group[0]], before_pass)
            else:
                before_pass()
                shared = self._run_shared([lists[number] for number in group])
                for number, list_states in zip(group, shared, strict=True):
                    states[number] = list_states
        return states

    def _group(self, lists: Sequence[CandidateList]) -> list[list[int]]:
        """Numbers of the lists that run together: only those of one shape, so that no score changes."""
        share = len(lists) > 1 and self._state == "last"
        alone: list[list[int]] = []
        groups_of_shape: dict[tuple[int, int], list[list[int]]] = {}
        for number, candidates in enumerate(lists):
            count = len(candidates.page_ids)
            if not share or not MIN_SHARED_PAGES <= count <= PAGES_PER_PASS // 2:
                alone += [[number]] if count else []
                continue
            shape = self._shape(candidates)
            if pages_per_pass(*shape) < PAGES_PER_PASS:
                alone.append([number])
                continue
            groups = groups_of_shape.setdefault(shape, [[]])
            if sum(len(lists[other].page_ids) for other in groups[-1]) + count > PAGES_PER_PASS:
                groups.append([])
            groups[-1].append(number)
        return alone + [group for groups in groups_of_shape.values() for group in groups]

    def _shape(self, candidates: CandidateList) -> tuple[int, int]:
        """Tokens behind the page, and positions of the longest page."""
        suffix_length = len(self._shallow.backbone.tokens.suffix(candidates.query))
        return suffix_length, self._longest_prefix(candidates)

    def _longest_prefix(self, candidates: CandidateList) -> int:
        """Positions of the longest page of a list: the length its pass is padded to."""
        stored = [page_id for page_id in candidates.page_ids if page_id not in candidates.unstored]
        lengths = [len(page.prefix.positions) for page in candidates.unstored.values()]
        return max([*lengths, *(entry.positions for entry in self._shallow.store.catalog.entries(stored))])

    def _run_shared(self, lists: Sequence[CandidateList]) -> list[ListStates]:
        """The states of several lists from one pass."""
        unstored = {page_id: page.prefix for each in lists for page_id, page in each.unstored.items()}
        shared = self._shallow.run_lists([(each.query, each.page_ids) for each in lists], unstored=unstored)
        ends = np.cumsum([len(each.page_ids) for each in lists])[:-1].tolist()
        parts = np.split(_to_float64([shared.states]), ends)
        return [ListStates(states, shared.reading_ms, shared.compute_ms) for states in parts]

    def _run_alone(self, candidates: CandidateList, before_pass: Callable[[], None]) -> ListStates:
        """The states of one list, in several passes where the list or its query is long."""
        unstored = {page_id: page.prefix for page_id, page in candidates.unstored.items()}
        count = pages_per_pass(*self._shape(candidates))
        passes = []
        for start in range(0, len(candidates.page_ids), count):
            before_pass()
            page_ids = candidates.page_ids[start : start + count]
            passes.append(self._shallow.run(candidates.query, page_ids, state=self._state, unstored=unstored))
        return ListStates(
            _to_float64([part.states for part in passes]),
            sum(part.reading_ms for part in passes),
            sum(part.compute_ms for part in passes),
        )


def _to_float64(states: Sequence[torch.Tensor]) -> Floats:
    return torch.cat(list(states)).cpu().numpy().astype(np.float64)
