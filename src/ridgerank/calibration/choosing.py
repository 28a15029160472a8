"""Which target a model supports, and where its state is read: measured, then chosen with a reason.

The paper asks for the margin and reads the last position; a model that was never taught to answer yes or no
may have a poor margin and still know which query belongs to which page. No judgement is needed to see it:
- a target that tells candidates apart has spread;
- the retriever is a witness: under the one-factor model (§B.6) its correlation with any score is c_b times
  that score's own correlation with relevance, and c_b is the same for all. So ρ_bt ranks targets by c_t and
  ρ_bs ranks readouts by c_s;
- the held-out r says how much of the target the state carries.

A reading is *supported* where all that holds up to the end: its weight is an estimate and promises a gain
(`weighing.py`). The paper's reading is kept wherever it is supported, even if another has a larger ρ_bs:
retriever and likelihood both count words, and what they share beyond relevance would flatter the likelihood.
Otherwise the supported one of largest c_s is taken. Where none is, the paper's stays, with its warnings.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ridgerank.calibration.artifact import Reading
from ridgerank.calibration.fit import Fit, Lessons, StatesElsewhere, fit, usable
from ridgerank.calibration.weighing import Weighing, weigh
from ridgerank.errors import CalibrationError
from ridgerank.fusion.estimate import WeightEstimate
from ridgerank.lists import Bools, Floats, Lists
from ridgerank.records import State, Target

PAPER: tuple[Target, State] = ("margin", "last")


@dataclass(frozen=True, slots=True, eq=False)
class Observed:
    """Calibration queries with their candidates, by every target and state that may be chosen."""

    lists: Lists
    corpora: tuple[str, ...]
    retriever: Floats
    """(members,): b."""
    targets: Mapping[Target, Floats]
    """(members,) each: t."""
    states: Mapping[State, Floats | StatesElsewhere]
    """(members, dim) each: h."""
    relevance: Floats | None
    """(members,), where there are judgements."""

    def lessons(self, target: Target, state: State) -> tuple[Lessons, Bools]:
        """What a readout of one reading learns from: the lists its target tells apart, and their members."""
        whole = Lessons(self.lists, self.corpora, self.retriever, self.targets[target], self.states[state])
        told_apart = usable(whole)
        if not told_apart.any():
            raise CalibrationError(
                f"the full model gives the candidates of each of {len(told_apart)} queries one and the same "
                f"{target}: there is no order to learn; use another backbone or other queries"
            )
        lists, members = self.lists.select(told_apart)
        corpora = tuple(np.array(self.corpora, dtype=object)[told_apart])
        states = whole.states
        kept = states[members] if isinstance(states, np.ndarray) else states.select(told_apart)
        lessons = Lessons(lists, corpora, self.retriever[members], whole.teacher[members], kept)
        return lessons, members


@dataclass(frozen=True, slots=True, eq=False)
class Attempt:
    """One reading, fitted and weighed."""

    reading: Reading
    lessons: Lessons
    fitted: Fit
    weighing: Weighing


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """The reading taken, why, and all that were looked at."""

    taken: Attempt
    reason: str
    readings: tuple[Reading, ...]
    attempts: tuple[Attempt, ...]
    """Those that could be fitted, in the same order."""


def choose(observed: Observed, *, elsewhere: WeightEstimate | None = None) -> Choice:
    """Fit every reading there is and take one; where none can be fitted, say why of the first.

    A weight judged `elsewhere`, on another corpus, is deployed where there are no judgements here.
    """
    attempts: list[Attempt] = []
    readings: list[Reading] = []
    errors: list[CalibrationError] = []
    for target in observed.targets:
        for state in observed.states:
            try:
                made = _attempt(observed, target, state, elsewhere)
            except CalibrationError as error:
                errors.append(error)
                readings.append(_unfitted(target, state, str(error)))
            else:
                attempts.append(made)
                readings.append(made.reading)
    if not attempts:
        raise errors[0]
    taken, reason = _best(attempts)
    return Choice(taken, reason, tuple(readings), tuple(attempts))


def _best(attempts: Sequence[Attempt]) -> tuple[Attempt, str]:
    first = next((one for one in attempts if (one.reading.target, one.reading.state) == PAPER), attempts[0])
    if len(attempts) == 1:
        return first, "the only reading asked for, or the only one that could be fitted"
    if first.reading.supported:
        return first, f"{first.reading.name}: the first choice, and this model supports it"
    supported = [one for one in attempts if one.reading.supported]
    if not supported:
        return first, f"{first.reading.name}: the first choice, though this model supports no reading"
    best = max(supported, key=_worth(attempts))
    reason = (
        f"{best.reading.name}: of the readings this model supports the one closest to relevance; "
        f"{first.reading.name} is not supported: {first.reading.note}"
    )
    return best, reason


def _worth(attempts: Sequence[Attempt]) -> Callable[[Attempt], float]:
    """c_s where relevance was judged; else ρ_bs, which is c_s times a factor that all readings share."""
    judged = attempts[0].weighing.closed_form is not None
    return lambda one: one.reading.relevance if judged else one.reading.retriever_readout


def _attempt(observed: Observed, target: Target, state: State, elsewhere: WeightEstimate | None) -> Attempt:
    lessons, members = observed.lessons(target, state)
    fitted = fit(lessons)
    relevance = None if observed.relevance is None else observed.relevance[members]
    weighing = weigh(lessons, fitted, relevance, elsewhere=elsewhere)
    estimate = weighing.closed_form or weighing.label_free
    centered = lessons.lists.center(lessons.teacher)
    deviations = np.sqrt(lessons.lists.sum(centered**2) / lessons.lists.lengths)
    reading = Reading(
        target=target,
        state=state,
        told_apart=len(lessons.lists) / len(observed.lists),
        spread=float(deviations.mean()),
        retriever_target=weighing.retriever_target,
        retriever_readout=weighing.retriever_readout,
        agreement=weighing.agreement,
        relevance=estimate.c_s,
        supported=not weighing.warnings,
        note=" ".join(_cause(warning) for warning in weighing.warnings),
    )
    return Attempt(reading, lessons, fitted, weighing)


def _cause(warning: str) -> str:
    """A warning up to what is done about it."""
    return re.split("[:;] the weight is ", warning)[0]


def _unfitted(target: Target, state: State, reason: str) -> Reading:
    unknown = float("nan")
    return Reading(
        target=target,
        state=state,
        told_apart=unknown,
        spread=unknown,
        retriever_target=unknown,
        retriever_readout=unknown,
        agreement=unknown,
        relevance=unknown,
        supported=False,
        note=reason,
    )
