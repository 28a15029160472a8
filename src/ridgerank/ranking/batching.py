"""The states of lists of candidates: which lists share a pass, and which are cut into several."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ridgerank.ragged import Floats
from ridgerank.ranking.candidates import Prepared
from ridgerank.ranking.shallow import ShallowPass
from ridgerank.records import State

PAGES_A_PASS = 64
"""More candidates than this run in several passes: memory grows with the pages of a pass."""
LEAST_SHARED = 8
"""Fewer candidates run in a pass of their own: products of few rows are summed in another order."""


@dataclass(frozen=True, slots=True, eq=False)
class States:
    """The states of one list, (candidates, width) in float64, and the time they took."""

    states: Floats
    reading_ms: float
    compute_ms: float


class Passes:
    """Runs lists over one store, the state read where the calibration says."""

    def __init__(self, shallow: ShallowPass, state: State) -> None:
        self._shallow = shallow
        self._state: State = state

    def run(self, prepared: Sequence[Prepared]) -> list[States | None]:
        """States of each list, None where it is empty."""
        found: list[States | None] = [None] * len(prepared)
        for places in self._together(prepared):
            asked = [(prepared[place].query, prepared[place].page_ids) for place in places]
            if len(asked) == 1:
                found[places[0]] = self._alone(prepared[places[0]])
                continue
            guests = {
                page_id: guest.prefix for place in places for page_id, guest in prepared[place].guests.items()
            }
            together = self._shallow.run_together(asked, guests)
            ends = np.cumsum([len(own) for _, own in asked])[:-1].tolist()
            parts = np.split(_doubles([together.states]), ends)
            for place, states in zip(places, parts, strict=True):
                found[place] = States(states, together.reading_ms, together.compute_ms)
        return found

    def _together(self, prepared: Sequence[Prepared]) -> list[list[int]]:
        """Which lists run together: only those of one shape, so that nobody's digits change."""
        together = len(prepared) > 1 and self._state == "last"
        alone: list[list[int]] = []
        shapes: dict[tuple[int, int], list[list[int]]] = {}
        for place, one in enumerate(prepared):
            count = len(one.page_ids)
            if not together or not LEAST_SHARED <= count <= PAGES_A_PASS // 2:
                alone += [[place]] if count else []
                continue
            shape = (self._shallow.backbone.suffix_length(one.query), self._longest(one))
            groups = shapes.setdefault(shape, [[]])
            if sum(len(prepared[other].page_ids) for other in groups[-1]) + count > PAGES_A_PASS:
                groups.append([])
            groups[-1].append(place)
        return alone + [group for groups in shapes.values() for group in groups]

    def _longest(self, one: Prepared) -> int:
        """Positions of the longest page of a list: the length its pass is padded to."""
        stored = [page_id for page_id in one.page_ids if page_id not in one.guests]
        lengths = [len(guest.prefix.positions) for guest in one.guests.values()]
        return max([*lengths, *(entry.positions for entry in self._shallow.store.catalog.entries(stored))])

    def _alone(self, asked: Prepared) -> States:
        prefixes = {page_id: guest.prefix for page_id, guest in asked.guests.items()}
        state = self._state
        passes = []
        for start in range(0, len(asked.page_ids), PAGES_A_PASS):
            page_ids = asked.page_ids[start : start + PAGES_A_PASS]
            if prefixes:
                passes.append(self._shallow.run_with(asked.query, page_ids, prefixes, state=state))
            else:
                passes.append(self._shallow.run(asked.query, page_ids, state=state))
        return States(
            _doubles([one.states for one in passes]),
            sum(one.reading_ms for one in passes),
            sum(one.compute_ms for one in passes),
        )


def _doubles(states: Sequence[torch.Tensor]) -> Floats:
    return torch.cat(list(states)).cpu().numpy().astype(np.float64)
