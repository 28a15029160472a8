"""What workers compute for a calibration: targets at full depth, states over stored pages, and sums of both.

States stay in Ray's object store, on the machines that computed them: only H'PH and H'Pt (eq. 8), scores and
list means come back. The stages are those of one machine (`calibration/executor.py`), in the same batches.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ridgerank.backbones.model_settings import ModelSettings
from ridgerank.calibration.executor import compute_list_states, compute_page_targets
from ridgerank.ragged import Floats
from ridgerank.ranking.shallow import ShallowPass
from ridgerank.readout.moments import CenteredMoments
from ridgerank.records import Candidate, State, Target
from ridgerank.scaleout.ray_datasets import Rows, map_records, read_records, write_records
from ridgerank.store.model_lineage import require_same_model
from ridgerank.store.page_store import PageStore
from ridgerank.store.rerender import PageLocation


@dataclass(frozen=True, slots=True)
class TargetTask:
    """A few pages, and the queries whose targets over them are to be computed."""

    pages: tuple[PageLocation, ...]
    queries: Mapping[str, Sequence[str]]
    """Page id → texts of the queries."""
    targets: tuple[Target, ...]


@dataclass(frozen=True, slots=True)
class StateTask:
    """A query to run over its candidates."""

    number: int
    """The number of the query's list."""
    text: str
    candidates: tuple[Candidate, ...]
    states: tuple[State, ...]


@dataclass(frozen=True, slots=True, eq=False)
class CalibrationStates:
    """The states of one list."""

    number: int
    states: Mapping[State, Floats]


class TargetWorker:
    """The full model of a store, for targets."""

    def __init__(self, model: ModelSettings, uri: str) -> None:
        self._backbone = model.load()
        with PageStore.open(uri) as store:
            require_same_model(store.lineage, self._backbone, artifact=f"the page store at {uri}")

    def __call__(self, rows: Rows) -> Rows:
        """Batches of pages in, their targets out."""
        return map_records(rows, self._compute_targets)

    def _compute_targets(self, task: TargetTask) -> object:
        return compute_page_targets(self._backbone, task.pages, task.queries, task.targets)


class StatesWorker:
    """The model of a store, cut at its exit layer, over the stored pages."""

    def __init__(self, model: ModelSettings, uri: str) -> None:
        self._shallow = ShallowPass(model.load(), PageStore.open(uri))

    def __call__(self, rows: Rows) -> Rows:
        """Queries in, the states of their candidates out."""
        return map_records(rows, self._run)

    def _run(self, task: StateTask) -> CalibrationStates:
        states = compute_list_states(self._shallow, task.text, task.candidates, task.states)
        return CalibrationStates(task.number, states)


def sum_moments(rows: Rows, state: State, folds: Mapping[int, str], targets: Mapping[int, Floats]) -> Rows:
    """The sums of a block of lists, by fold; lists without a fold are left out."""
    moments: dict[str, CenteredMoments] = {}
    for list_states in read_records(rows):
        if list_states.number in folds:
            states = list_states.states[state]
            fold_moments = moments.setdefault(folds[list_states.number], CenteredMoments(states.shape[1]))
            fold_moments.add(states, targets[list_states.number])
    return write_records([moments])


def project_states(rows: Rows, state: State, vectors: Mapping[int, Floats]) -> Rows:
    """The states of each list times its vector; lists without one are left out."""
    lists: list[CalibrationStates] = [record for record in read_records(rows) if record.number in vectors]
    return write_records([(record.number, record.states[state] @ vectors[record.number]) for record in lists])


def average_states(rows: Rows, state: State, numbers: frozenset[int]) -> Rows:
    """The mean state of each list; lists without a number in `numbers` are left out."""
    lists: list[CalibrationStates] = [record for record in read_records(rows) if record.number in numbers]
    return write_records([(record.number, record.states[state].mean(axis=0)) for record in lists])
