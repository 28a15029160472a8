"""A calibration whose model runs on Ray: an `Executor` that sends pages and queries to workers."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ridgerank.backbones.model_settings import ModelSettings
from ridgerank.calibration.executor import PageTargets
from ridgerank.calibration.ridge_fit import RemoteStates
from ridgerank.calibration.synthetic_queries import QuerySet
from ridgerank.calibration.target_cache import TargetCache
from ridgerank.errors import CalibrationError
from ridgerank.ragged import Bools, Floats
from ridgerank.readout.moments import CenteredMoments
from ridgerank.records import Candidate, Query, State, Target
from ridgerank.scaleout.calibration_workers import (
    StatesWorker,
    StateTask,
    TargetTask,
    TargetWorker,
    average_states,
    project_states,
    sum_moments,
)
from ridgerank.scaleout.ray_cluster import ClusterWorkers, translate_ray_errors
from ridgerank.scaleout.ray_datasets import Rows, iter_results, map_on_workers
from ridgerank.store.rerender import BATCH_PAGES, PageLocation

_SAFE = "targets taken so far are kept"
_BLOCKS_PER_WORKER = 4
"""Blocks of states: a block is summed at once, and computed again when its worker is lost."""


@dataclass(frozen=True, slots=True)
class RayExecutor:
    """Runs the model of a store on the workers of the connected cluster."""

    uri: str
    model: ModelSettings
    workers: ClusterWorkers

    def write_queries(self, cache: TargetCache, *, count: int, documents: Sequence[Path]) -> QuerySet:
        """Refuse: a model writes queries one page after the other, which does not spread over machines."""
        raise CalibrationError(
            "the pages' text makes too few queries, and on Ray the model is not asked for them; give them in "
            "a file (--queries), or calibrate without --ray"
        )

    def compute_targets(
        self,
        pages: Sequence[PageLocation],
        queries_by_page: Mapping[str, Sequence[str]],
        targets: Sequence[Target],
    ) -> Iterator[PageTargets]:
        """Targets of each page's queries, some pages at a time."""
        batches = [tuple(pages[start : start + BATCH_PAGES]) for start in range(0, len(pages), BATCH_PAGES)]
        tasks = [
            TargetTask(
                batch, {page.ref.page_id: queries_by_page[page.ref.page_id] for page in batch}, tuple(targets)
            )
            for batch in batches
        ]
        if tasks:
            dataset = self._map(tasks, TargetWorker, blocks=len(tasks))
            yield from iter_results(dataset, "calibrating", safe=_SAFE)

    def compute_states(
        self,
        candidates: Mapping[Query, Sequence[Candidate]],
        states: Sequence[State],
        *,
        on_queries_run: Callable[[int], None],
    ) -> Mapping[State, Floats | RemoteStates]:
        """States over the stored candidates, which stay on the machines that computed them."""
        tasks = [
            StateTask(number, query.text, tuple(query_candidates), tuple(states))
            for number, (query, query_candidates) in enumerate(candidates.items())
        ]
        blocks = min(len(tasks), _BLOCKS_PER_WORKER * self.workers.count)
        with translate_ray_errors("running the queries", safe=_SAFE):
            dataset = self._map(tasks, StatesWorker, blocks=blocks).materialize()
        on_queries_run(len(tasks))
        numbers = tuple(range(len(tasks)))
        return {state: _StatesOnRay(dataset, state, numbers) for state in states}

    def _map(self, tasks: Sequence[object], worker: type, *, blocks: int) -> Any:  # noqa: ANN401 (a data set of Ray)
        return map_on_workers(tasks, worker, (self.model, self.uri), workers=self.workers, blocks=blocks)


@dataclass(frozen=True, slots=True, eq=False)
class _StatesOnRay:
    """States in Ray's object store, summed and scored on the machines that hold them."""

    dataset: Any
    """A data set of `CalibrationStates`."""
    state: State
    numbers: tuple[int, ...]
    """The selected lists, by their number in the data set."""

    def select(self, lists: Bools) -> "_StatesOnRay":
        """The states of some of the lists."""
        numbers = tuple(number for number, selected in zip(self.numbers, lists, strict=True) if selected)
        return _StatesOnRay(self.dataset, self.state, numbers)

    def moments(self, folds: Sequence[str], targets: Sequence[Floats]) -> dict[str, CenteredMoments]:
        """Sums of all lists by the fold of each list, given the targets of each list."""
        sum_block = partial(
            sum_moments,
            state=self.state,
            folds=dict(zip(self.numbers, folds, strict=True)),
            targets=dict(zip(self.numbers, targets, strict=True)),
        )
        sums: dict[str, CenteredMoments] = {}
        for block in self._map(sum_block):
            for fold, moments in block.items():
                sums.setdefault(fold, CenteredMoments(moments.dim)).merge(moments)
        return {fold: sums[fold] for fold in dict.fromkeys(folds)}

    def scores(self, vectors: Sequence[Floats]) -> Floats:
        """(members,): the states of each list times the vector of this list."""
        vector_of_list = dict(zip(self.numbers, vectors, strict=True))
        scores_of_list = dict(self._map(partial(project_states, state=self.state, vectors=vector_of_list)))
        return np.concatenate([scores_of_list[number] for number in self.numbers])

    def means(self) -> Floats:
        """(lists, dim): the mean state of each list."""
        work = partial(average_states, state=self.state, numbers=frozenset(self.numbers))
        mean_of_list = dict(self._map(work))
        return np.stack([mean_of_list[number] for number in self.numbers])

    def _map(self, work: Callable[[Rows], Rows]) -> Iterator[Any]:
        """Run `work` on every block of states; its results, in order."""
        return iter_results(self.dataset.map_batches(work, batch_size=None), "calibrating", safe=_SAFE)
