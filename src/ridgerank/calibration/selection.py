"""Which target a model supports, and where its state is read: measured, then chosen with a reason.

The paper asks for the margin and reads the last position; a model that was never taught to answer yes or no
may have a poor margin and still know which query belongs to which page. No judgement is needed to see it:
- a target that tells candidates apart has spread;
- the retriever is a witness: under the one-factor model (§B.6) its correlation with any score is c_b times
  that score's own correlation with relevance, and c_b is the same for all. So ρ_bt ranks targets by c_t and
  ρ_bs ranks readouts by c_s;
- the held-out r says how much of the target the state carries.

A reading is *supported* where all that holds up to the end: its weight is an estimate and promises a gain
(`weighing.py`). Two things are the same for all readings, and are used so:
- c_b is the retriever's. A readout shares more with its own teacher than relevance, which makes ρ_st too
  large and c_b = √(ρ_bs ρ_bt / ρ_st) too small: of all readings the one that puts c_b highest is believed, as
  long as the best teacher is still as good as the retriever (a readout that copies the retriever knows no
  such bound);
- ρ_bs compares readings. But retriever and likelihood both count words, and share more than relevance. So
  the paper's reading, where it is supported, gives way only to one whose ρ_bs is `_CLEARLY` times its own.
Where the paper's is not supported, the supported one of largest ρ_bs is taken; where none is, the paper's
stays, with its warnings. With judgements c_s is measured, and takes the place of ρ_bs, as it is.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ridgerank.calibration.artifact import Reading
from ridgerank.calibration.fusion_weight import Weighing, mean_interval, weigh
from ridgerank.calibration.ridge_fit import Fit, RidgeProblem, StatesElsewhere, fit, usable
from ridgerank.errors import CalibrationError
from ridgerank.fusion.correlations import correlation
from ridgerank.fusion.estimate import BEYOND_CHANCE, WeightEstimate
from ridgerank.fusion.standardize import discounts
from ridgerank.ragged import Bools, Floats, Ragged
from ridgerank.records import State, Target

PAPER: tuple[Target, State] = ("margin", "last")
_CLEARLY = 1.5
"""Between scores of very different kinds, what they share with a retriever beyond relevance differed by a
factor of 1.3 (docs/real-documents.md)."""


@dataclass(frozen=True, slots=True, eq=False)
class Observed:
    """Calibration queries with their candidates, by every target and state that may be chosen."""

    lists: Ragged
    corpora: tuple[str, ...]
    retriever: Floats
    """(members,): b."""
    targets: Mapping[Target, Floats]
    """(members,) each: t."""
    states: Mapping[State, Floats | StatesElsewhere]
    """(members, dim) each: h."""
    relevance: Floats | None
    """(members,), where there are judgements."""

    def lessons(self, target: Target, state: State) -> tuple[RidgeProblem, Bools]:
        """What a readout of one reading learns from: the lists its target tells apart, and their members."""
        whole = RidgeProblem(
            self.lists, self.corpora, self.retriever, self.targets[target], self.states[state]
        )
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
        lessons = RidgeProblem(lists, corpora, self.retriever[members], whole.teacher[members], kept)
        return lessons, members


@dataclass(frozen=True, slots=True, eq=False)
class Attempt:
    """One reading, fitted and weighed."""

    reading: Reading
    lessons: RidgeProblem
    fitted: Fit
    weighing: Weighing
    worth: Floats
    """(lists,): query by query, how far the readout correlates with relevance where judged, else with
    the retriever; 0 where its target does not tell the candidates apart."""


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
    fits: list[_Fitted] = []
    refused: dict[tuple[Target, State], CalibrationError] = {}
    for target in observed.targets:
        for state in observed.states:
            try:
                lessons, members = observed.lessons(target, state)
                fits.append(_Fitted(target, state, lessons, members, fit(lessons)))
            except CalibrationError as error:
                refused[target, state] = error
    if not fits:
        raise next(iter(refused.values()))
    least_c_b = _retriever_relevance(fits)
    attempts = [_attempt(observed, one, elsewhere, least_c_b) for one in fits]
    made = {(one.reading.target, one.reading.state): one.reading for one in attempts}
    made |= {pair: _unfitted(*pair, str(error)) for pair, error in refused.items()}
    taken, reason = _best(attempts, judged=observed.relevance is not None)
    pairs = [(target, state) for target in observed.targets for state in observed.states]
    return Choice(taken, reason, tuple(made[pair] for pair in pairs), tuple(attempts))


@dataclass(frozen=True, slots=True, eq=False)
class _Fitted:
    target: Target
    state: State
    lessons: RidgeProblem
    members: Bools
    fit: Fit


def _retriever_relevance(fits: Sequence[_Fitted]) -> float:
    """c_b: the highest of what the readings say of it, 0 where none does.

    Since ρ_bt = c_b c_t, c_b up to √ρ_bt leaves a teacher at least as good as the retriever.
    """
    weighed = [weigh(one.lessons, one.fit, None) for one in fits] if len(fits) > 1 else []
    defined = [one for one in weighed if one.label_free.method == "label-free"]
    if not defined:
        return 0.0
    equal = np.sqrt(max(one.retriever_target for one in defined))
    return min(max(one.label_free.c_b for one in defined), float(equal))


def _best(attempts: Sequence[Attempt], *, judged: bool) -> tuple[Attempt, str]:
    first = next((one for one in attempts if (one.reading.target, one.reading.state) == PAPER), attempts[0])
    if len(attempts) == 1:
        return first, "the only reading asked for, or the only one that could be fitted"
    supported = [one for one in attempts if one.reading.supported]
    if not supported:
        return first, f"{first.reading.name}: the first choice, though this model supports no reading"
    best = max(supported, key=lambda one: float(one.worth.mean()))
    if not first.reading.supported:
        return best, (
            f"{best.reading.name}: of the readings this model supports the one closest to relevance; "
            f"{first.reading.name} is not supported: {first.reading.note}"
        )
    if best is first or not _clearly_better(best, first, times=1.0 if judged else _CLEARLY):
        return first, f"{first.reading.name}: the first choice, and this model supports it"
    what = "relevance" if judged else "the retriever, the only witness,"
    return best, (
        f"{best.reading.name}: its correlation with {what} is {best.worth.mean():.2f}, clearly more than "
        f"that of {first.reading.name}, {first.worth.mean():.2f}"
    )


def _clearly_better(one: Attempt, other: Attempt, *, times: float) -> bool:
    """Worth so many times as much, and more beyond chance."""
    _, (least, _) = mean_interval(one.worth - other.worth, errors=BEYOND_CHANCE)
    return bool(one.worth.mean() > times * other.worth.mean() and least > 0)


def _attempt(observed: Observed, own: _Fitted, elsewhere: WeightEstimate | None, least_c_b: float) -> Attempt:
    lessons = own.lessons
    relevance = None if observed.relevance is None else observed.relevance[own.members]
    weighing = weigh(lessons, own.fit, relevance, elsewhere=elsewhere, least_c_b=least_c_b)
    estimate = weighing.closed_form or weighing.label_free
    centered = lessons.lists.center(lessons.teacher)
    deviations = np.sqrt(lessons.lists.sum(centered**2) / lessons.lists.lengths)
    reading = Reading(
        target=own.target,
        state=own.state,
        told_apart=len(lessons.lists) / len(observed.lists),
        spread=float(deviations.mean()),
        retriever_target=weighing.retriever_target,
        retriever_readout=weighing.retriever_readout,
        agreement=weighing.agreement,
        relevance=estimate.c_s,
        supported=not weighing.warnings,
        note=" ".join(_cause(warning) for warning in weighing.warnings),
    )
    return Attempt(reading, lessons, own.fit, weighing, _worth(observed, own))


def _worth(observed: Observed, own: _Fitted) -> Floats:
    b, lists = own.lessons.retriever, own.lessons.lists
    witness = b if observed.relevance is None else observed.relevance[own.members]
    worth = np.zeros(len(observed.lists))
    told_apart = own.members[observed.lists.offsets[:-1]]
    worth[told_apart] = correlation(own.fit.held_out, witness, lists, weights=discounts(b, lists))
    return worth


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
