"""What workers do for a calibration: targets at full depth, states over stored pages, and sums of both.

States stay in Ray's object store, on the machines that made them: only H'PH and H'Pt (eq. 8) and scores come
back. The stages are those of one machine (`calibration/executor.py`), in the same batches.
"""

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ridgerank.calibration.executor import states_of, teach_pages
from ridgerank.calibration.rerender import FoundAgain
from ridgerank.ragged import Floats
from ridgerank.ranking.shallow import ShallowPass
from ridgerank.readout.moments import CenteredMoments
from ridgerank.records import Candidate, State, Target
from ridgerank.scaleout.ray_cluster import ModelPlan
from ridgerank.store.model_lineage import require_same_origin
from ridgerank.store.page_store import PageStore

GIVEN, MADE = "given", "made"
"""The column of what goes to a worker, and of what comes back: pickled records."""


@dataclass(frozen=True, slots=True)
class Lesson:
    """A few pages, and the queries whose targets over them are wanted."""

    found: tuple[FoundAgain, ...]
    wanted: Mapping[str, Sequence[str]]
    targets: tuple[Target, ...]


@dataclass(frozen=True, slots=True)
class Asked:
    """A query to run over its candidates."""

    number: int
    """Of its list."""
    text: str
    candidates: tuple[Candidate, ...]
    states: tuple[State, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Ran:
    """The states of one list."""

    number: int
    states: Mapping[State, Floats]


class TeachingWorker:
    """The full model of a store, for targets."""

    def __init__(self, model: ModelPlan, uri: str) -> None:
        self._backbone = model.load()
        with PageStore.open(uri) as store:
            require_same_origin(store.lineage, self._backbone, artifact=f"the page store at {uri}")

    def __call__(self, rows: dict[str, Any]) -> dict[str, Any]:
        """Lessons in, what was taught out."""
        return _mapped(rows, self._teach)

    def _teach(self, lesson: Lesson) -> object:
        return teach_pages(self._backbone, lesson.found, lesson.wanted, lesson.targets)


class StatesWorker:
    """The model of a store, cut at its exit layer, over the stored pages."""

    def __init__(self, model: ModelPlan, uri: str) -> None:
        self._shallow = ShallowPass(model.load(), PageStore.open(uri))

    def __call__(self, rows: dict[str, Any]) -> dict[str, Any]:
        """Queries in, the states of their candidates out."""
        return _mapped(rows, self._run)

    def _run(self, asked: Asked) -> Ran:
        return Ran(asked.number, states_of(self._shallow, asked.text, asked.candidates, asked.states))


def summed(
    rows: dict[str, Any], state: State, parts: Mapping[int, str], teacher: Mapping[int, Floats]
) -> dict[str, Any]:
    """The sums of a block of lists, by part; lists that belong to none are left out."""
    moments: dict[str, CenteredMoments] = {}
    for ran in _read(rows):
        if ran.number in parts:
            states = ran.states[state]
            own = moments.setdefault(parts[ran.number], CenteredMoments(states.shape[1]))
            own.add(states, teacher[ran.number])
    return _written([moments])


def scored(rows: dict[str, Any], state: State, vectors: Mapping[int, Floats]) -> dict[str, Any]:
    """The states of each list times its vector; lists without one are left out."""
    ran = [one for one in _read(rows) if one.number in vectors]
    return _written([(one.number, one.states[state] @ vectors[one.number]) for one in ran])


def _mapped(rows: dict[str, Any], work: Any) -> dict[str, Any]:  # noqa: ANN401 (any record to any other)
    return _written([work(pickle.loads(given)) for given in rows[GIVEN]])


def _read(rows: dict[str, Any]) -> list[Any]:
    return [pickle.loads(made) for made in rows[MADE]]


def _written(made: Sequence[object]) -> dict[str, Any]:
    column = np.empty(len(made), dtype=object)
    column[:] = [pickle.dumps(one) for one in made]
    return {MADE: column}
