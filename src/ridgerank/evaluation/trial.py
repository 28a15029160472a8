"""The verdict of a trial: is reranking worth it on these documents, as far as these questions can tell."""

from dataclasses import dataclass, replace
from typing import Literal

from scipy.special import stdtrit

from ridgerank.evaluation.comparison import PairedDifference

Outcome = Literal["worth it", "not worth it", "cannot tell yet"]
LEAST_GAIN = 1.0
"""Points below which a gain is not worth a model."""
MOST_QUESTIONS = 500
"""More than this nobody judges: the answer is then "over 500"."""
_NORMAL = 1.96


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a trial says, and from what."""

    outcome: Outcome
    sentence: str
    gain: float
    """Points of the measure."""
    interval: tuple[float, float]
    """95 %, documents resampled."""
    questions: int
    documents: int
    questions_needed: int | None
    """Judged questions that would tell, at this gain and spread; None if it told, or if no number would."""


def widen(difference: PairedDifference) -> PairedDifference:
    """The interval widened by Student's t for the number of documents.

    Resampling few of them understates the error.
    """
    if difference.groups < 2:
        return replace(difference, interval=(-100.0, 100.0))
    wider = float(stdtrit(difference.groups - 1, 0.975)) / _NORMAL
    low, high = (difference.difference + wider * (end - difference.difference) for end in difference.interval)
    return replace(difference, interval=(low, high))


def reach_verdict(
    difference: PairedDifference, *, questions: int, made: bool = False, blind: str = ""
) -> Verdict:
    """Judge a widened difference; `blind` says why the weight is 0, if it is.

    Questions that were `made` from the pages flatter one side or the other, so that they can speak against a
    model and never plainly for it.
    """
    gain, documents, (low, high) = difference.difference, difference.groups, difference.interval
    subject = "On questions made from your pages, reranking" if made else "Reranking"
    shown = f"{gain:+.1f} points of {difference.measure} ({low:+.1f} to {high:+.1f})"
    outcome: Outcome = "cannot tell yet"
    needed: int | None = None
    if blind:
        outcome, sentence = "not worth it", f"Not worth it with this model: {blind}."
    elif low > 0 and not made:
        outcome, sentence = "worth it", f"Worth it: {subject.lower()} gains {shown}."
    elif low > 0:
        sentence = f"{subject} gains {shown}; judge some of your own to know."
    elif high < LEAST_GAIN:
        outcome, sentence = "not worth it", f"Not worth it: {subject[0].lower()}{subject[1:]} gives {shown}."
    else:
        half = (high - low) / 2.0
        count = questions * (half / gain) ** 2 if gain > 0 else float("inf")
        needed = round(count) if count <= MOST_QUESTIONS else None
        tells = f"about {needed}" if needed else f"over {MOST_QUESTIONS}"
        sentence = f"Cannot tell yet: {subject[0].lower()}{subject[1:]} gives {shown}; "
        sentence += f"{tells} judged questions would tell."
    return Verdict(outcome, sentence, gain, (low, high), questions, documents, needed)
