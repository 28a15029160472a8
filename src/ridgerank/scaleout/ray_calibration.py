"""A calibration whose model runs on Ray: `Executor` that hand pages and queries to workers by Ray Data."""

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ridgerank.calibration.executor import PageTargets
from ridgerank.calibration.rerender import BATCH_PAGES, FoundAgain
from ridgerank.calibration.ridge_fit import StatesElsewhere
from ridgerank.calibration.synthetic_queries import MadeQueries
from ridgerank.calibration.target_cache import TargetCache
from ridgerank.errors import CalibrationError
from ridgerank.ragged import Bools, Floats
from ridgerank.readout.moments import CenteredMoments
from ridgerank.records import Candidate, Query, State, Target
from ridgerank.scaleout.calibration_workers import (
    GIVEN,
    MADE,
    Asked,
    Lesson,
    StatesWorker,
    TeachingWorker,
    scored,
    summed,
)
from ridgerank.scaleout.ray_cluster import Crew, ModelPlan, telling
from ridgerank.store.page_store import PageStore

if TYPE_CHECKING:
    from ridgerank.calibration.calibrate import CalibrationRequest

_SAFE = "targets taken so far are kept"
_BLOCKS_A_WORKER = 4
"""Blocks of states: what is summed at once, and done again when its worker is lost."""


@dataclass(frozen=True, slots=True)
class RayExecutor:
    """Runs the model of a store on the workers of a cluster that is connected."""

    uri: str
    model: ModelPlan
    crew: Crew

    def queries(self, store: PageStore, request: "CalibrationRequest", cache: TargetCache) -> MadeQueries:
        """Refuse: a model writes queries one page after the other, which is no work for many machines."""
        raise CalibrationError(
            "the pages' text makes too few queries, and on Ray the model is not asked for them; give them in "
            "a file (--queries), or calibrate without --ray"
        )

    def teach(
        self, found: Sequence[FoundAgain], wanted: Mapping[str, Sequence[str]], targets: Sequence[Target]
    ) -> Iterator[PageTargets]:
        """Targets of the queries wanted over each page, some pages at a time."""
        batches = [tuple(found[start : start + BATCH_PAGES]) for start in range(0, len(found), BATCH_PAGES)]
        lessons = [
            Lesson(batch, {one.ref.page_id: wanted[one.ref.page_id] for one in batch}, tuple(targets))
            for batch in batches
        ]
        if lessons:
            made = self._mapped(lessons, TeachingWorker, blocks=len(lessons))
            yield from _records(made)

    def states(
        self, candidates: Mapping[Query, Sequence[Candidate]], states: Sequence[State]
    ) -> Iterator[int | Mapping[State, Floats | StatesElsewhere]]:
        """States over the stored candidates: first how many queries more are done, at the end the states."""
        asked = [
            Asked(number, query.text, tuple(own), tuple(states))
            for number, (query, own) in enumerate(candidates.items())
        ]
        blocks = min(len(asked), _BLOCKS_A_WORKER * self.crew.workers)
        with telling("running the queries", safe=_SAFE):
            held = self._mapped(asked, StatesWorker, blocks=blocks).materialize()
        yield len(asked)
        numbers = tuple(range(len(asked)))
        yield {state: _StatesOnRay(held, state, numbers) for state in states}

    def _mapped(self, given: Sequence[object], worker: type, *, blocks: int) -> Any:  # noqa: ANN401 (a data set)
        import ray.data
        from ray.data import ActorPoolStrategy, DataContext

        context = DataContext.get_current()
        context.execution_options.preserve_order = True
        context.enable_progress_bars = False
        rows = ray.data.from_items([{GIVEN: pickle.dumps(one)} for one in given], override_num_blocks=blocks)
        return rows.map_batches(
            worker,
            fn_constructor_args=(self.model, self.uri),
            batch_size=1,
            compute=ActorPoolStrategy(size=min(self.crew.workers, blocks)),
            **self.crew.resources,
        )


@dataclass(frozen=True, slots=True, eq=False)
class _StatesOnRay:
    """States in Ray's object store: summed and scored where they are."""

    held: Any
    """A data set of `Ran`."""
    state: State
    numbers: tuple[int, ...]
    """The lists that count, as they were numbered when they were asked."""

    def select(self, lists: Bools) -> "_StatesOnRay":
        """Those of some of the lists."""
        numbers = tuple(number for number, own in zip(self.numbers, lists, strict=True) if own)
        return _StatesOnRay(self.held, self.state, numbers)

    def moments(self, parts: Sequence[str], teacher: Sequence[Floats]) -> dict[str, CenteredMoments]:
        """Sums of all lists by the part each belongs to, given the targets of each list."""
        work = partial(
            summed,
            state=self.state,
            parts=dict(zip(self.numbers, parts, strict=True)),
            teacher=dict(zip(self.numbers, teacher, strict=True)),
        )
        sums: dict[str, CenteredMoments] = {}
        for block in _records(self.held.map_batches(work, batch_size=None)):
            for part, own in block.items():
                sums.setdefault(part, CenteredMoments(own.dim)).merge(own)
        return {part: sums[part] for part in dict.fromkeys(parts)}

    def scores(self, vectors: Sequence[Floats]) -> Floats:
        """(members,): the states of each list times a vector of its own."""
        work = partial(scored, state=self.state, vectors=dict(zip(self.numbers, vectors, strict=True)))
        found = dict(_records(self.held.map_batches(work, batch_size=None)))
        return np.concatenate([found[number] for number in self.numbers])


def _records(made: Any) -> Iterable[Any]:  # noqa: ANN401
    """What workers have pickled, in order."""
    with telling("calibrating", safe=_SAFE):
        for row in made.iter_rows():
            yield pickle.loads(row[MADE])
