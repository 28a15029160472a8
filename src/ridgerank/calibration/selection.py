"""Which target a readout is fitted to, and where its state is read: measured, then selected with a reason.

The paper asks for the margin and reads the last position; a model that was never taught to answer yes or no
may have a poor margin and still know which query belongs to which page. No judgement is needed to see it:
- a target that tells candidates apart has spread;
- the retriever is a witness. Under the one-factor model (§B.6) its correlation with any score is c_b times
  that score's own correlation with relevance, and c_b is the same for all. So ρ_bt ranks targets by c_t and
  ρ_bs ranks readouts by c_s;
- the held-out r says how much of the target the state carries.

An option is a target and a state. It is *supported* where its weight is an estimate and promises a gain
(`weight.py`). ρ_bs compares options. But retriever and likelihood both count words, and share more
than relevance. So the paper's option, where it is supported, gives way only to one whose ρ_bs is `_CLEARLY`
times as large.
Where the paper's option is not supported, the supported option of largest ρ_bs is selected; where none is,
the paper's stays, with its warnings. With judgements, c_s is measured and takes the place of ρ_bs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ridgerank.calibration.artifact import ReadoutOption
from ridgerank.calibration.ridge_fit import RidgeFit, RidgeProblem, find_varied_lists, fit_readout
from ridgerank.calibration.weight import WeightDecision, decide_weight, mean_interval
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
class CalibrationData:
    """Calibration queries with their candidates, by every target and state that may be selected."""

    lists: Ragged
    corpora: tuple[str, ...]
    retriever: Floats
    """(members,): b."""
    targets: Mapping[Target, Floats]
    """(members,) each: t."""
    states: Mapping[State, Floats]
    """(members, dim) each: h."""
    relevance: Floats | None
    """(members,), where there are judgements."""

    def problem(self, target: Target, state: State) -> tuple[RidgeProblem, Bools]:
        """The lists in which the target of an option varies, to fit a readout to, and their members."""
        whole = RidgeProblem(
            self.lists, self.corpora, self.retriever, self.targets[target], self.states[state]
        )
        varied = find_varied_lists(whole)
        if not varied.any():
            raise CalibrationError(
                f"the teacher gives the candidates of each of {len(varied)} queries one and the same "
                f"{target}: there is no order to learn; use another backbone, teacher or other queries"
            )
        lists, members = self.lists.select(varied)
        corpora = tuple(np.array(self.corpora, dtype=object)[varied])
        problem = RidgeProblem(
            lists, corpora, self.retriever[members], whole.targets[members], whole.states[members]
        )
        return problem, members


@dataclass(frozen=True, slots=True, eq=False)
class FittedOption:
    """One option with its fit and its weight."""

    option: ReadoutOption
    problem: RidgeProblem
    fit: RidgeFit
    decision: WeightDecision
    witness_correlations: Floats
    """(lists,): query by query, the readout's correlation with relevance where judged, else with the
    retriever; 0 where the target does not vary."""
    relevance: Floats | None
    """(members,) of `problem`, where there are judgements."""
    members: Bools
    """(members,) of the data: those of `problem`."""


@dataclass(frozen=True, slots=True, eq=False)
class Selection:
    """The selected option, the reason, and all options that were measured."""

    selected: FittedOption
    reason: str
    options: tuple[ReadoutOption, ...]
    fitted: tuple[FittedOption, ...]
    """The options that could be fitted, in the same order."""


@dataclass(frozen=True, slots=True, eq=False)
class OptionFit:
    """The readout of one target and state, before its weight is known."""

    target: Target
    state: State
    problem: RidgeProblem
    members: Bools
    """(members,) of the data: those of `problem`."""
    fit: RidgeFit


def select_readout(data: CalibrationData, *, transferred: WeightEstimate | None = None) -> Selection:
    """Fit every option, weigh each, and select one; if none can be fitted, raise the reason of the first."""
    return weigh(data, fit_options(data), transferred=transferred)


def fit_options(data: CalibrationData) -> dict[tuple[Target, State], OptionFit | CalibrationError]:
    """The readout of every target and state, or why there is none."""
    fits: dict[tuple[Target, State], OptionFit | CalibrationError] = {}
    for target in data.targets:
        for state in data.states:
            try:
                problem, members = data.problem(target, state)
                fits[target, state] = OptionFit(target, state, problem, members, fit_readout(problem))
            except CalibrationError as error:
                fits[target, state] = error
    return fits


def weigh(
    data: CalibrationData,
    fits: Mapping[tuple[Target, State], OptionFit | CalibrationError],
    *,
    transferred: WeightEstimate | None = None,
) -> Selection:
    """Decide the weight of every fitted option and select one; without any, raise the first reason.

    A weight `transferred` from the judgements of another corpus is deployed if there are none here.
    """
    fitted: list[FittedOption] = []
    options: list[ReadoutOption] = []
    for (target, state), fit in fits.items():
        if isinstance(fit, CalibrationError):
            options.append(_unfitted_option(target, state, str(fit)))
        else:
            fitted.append(_evaluate(data, fit, transferred))
            options.append(fitted[-1].option)
    if not fitted:
        raise next(fit for fit in fits.values() if isinstance(fit, CalibrationError))
    selected, reason = _select(fitted, judged=data.relevance is not None)
    return Selection(selected, reason, tuple(options), tuple(fitted))


def _select(fitted: Sequence[FittedOption], *, judged: bool) -> tuple[FittedOption, str]:
    first = next((each for each in fitted if (each.option.target, each.option.state) == PAPER), fitted[0])
    if len(fitted) == 1:
        return first, "the only reading asked for, or the only one that could be fitted"
    supported = [each for each in fitted if each.option.supported]
    if not supported:
        return first, f"{first.option.name}: the first choice, though this model supports no reading"
    best = max(supported, key=lambda each: float(each.witness_correlations.mean()))
    if not first.option.supported:
        return best, (
            f"{best.option.name}: of the readings this model supports the one closest to relevance; "
            f"{first.option.name} is not supported: {first.option.note}"
        )
    if best is first or not _is_clearly_better(best, first, factor=1.0 if judged else _CLEARLY):
        return first, f"{first.option.name}: the first choice, and this model supports it"
    witness = "relevance" if judged else "the retriever, the only witness,"
    return best, (
        f"{best.option.name}: its correlation with {witness} is {best.witness_correlations.mean():.2f}, "
        f"clearly more than that of {first.option.name}, {first.witness_correlations.mean():.2f}"
    )


def _is_clearly_better(better: FittedOption, other: FittedOption, *, factor: float) -> bool:
    """Its correlation with the witness is larger by this factor, and larger beyond chance."""
    values, other_values = better.witness_correlations, other.witness_correlations
    _, (least, _) = mean_interval(values - other_values, errors=BEYOND_CHANCE)
    return bool(values.mean() > factor * other_values.mean() and least > 0)


def _evaluate(
    data: CalibrationData, option_fit: OptionFit, transferred: WeightEstimate | None
) -> FittedOption:
    problem, fit = option_fit.problem, option_fit.fit
    relevance = None if data.relevance is None else data.relevance[option_fit.members]
    decision = decide_weight(problem, fit, relevance, transferred=transferred)
    centered = problem.lists.center(problem.targets)
    deviations = np.sqrt(problem.lists.sum(centered**2) / problem.lists.lengths)
    option = ReadoutOption(
        target=option_fit.target,
        state=option_fit.state,
        varied_share=len(problem.lists) / len(data.lists),
        spread=float(deviations.mean()),
        retriever_target=decision.retriever_target,
        retriever_readout=decision.retriever_readout,
        agreement=decision.agreement,
        relevance=(decision.closed_form or decision.label_free).c_s,
        supported=not decision.warnings,
        note=decision.deployed.cause if decision.warnings else "",
    )
    witness_correlations = _witness_correlations(data, option_fit)
    return FittedOption(option, problem, fit, decision, witness_correlations, relevance, option_fit.members)


def _witness_correlations(data: CalibrationData, option_fit: OptionFit) -> Floats:
    b, lists = option_fit.problem.retriever, option_fit.problem.lists
    witness = b if data.relevance is None else data.relevance[option_fit.members]
    correlations = np.zeros(len(data.lists))
    varied = option_fit.members[data.lists.offsets[:-1]]
    correlations[varied] = correlation(
        option_fit.fit.held_out_scores, witness, lists, weights=discounts(b, lists)
    )
    return correlations


def _unfitted_option(target: Target, state: State, reason: str) -> ReadoutOption:
    unknown = float("nan")
    return ReadoutOption(
        target=target,
        state=state,
        varied_share=unknown,
        spread=unknown,
        retriever_target=unknown,
        retriever_readout=unknown,
        agreement=unknown,
        relevance=unknown,
        supported=False,
        note=reason,
    )
