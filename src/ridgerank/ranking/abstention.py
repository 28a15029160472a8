"""Leaving out pages that are probably not relevant; a query may then have no answer at all."""

from dataclasses import replace

from ridgerank.calibration.artifact import Calibration
from ridgerank.errors import ScoreError
from ridgerank.records import Ranking

NO_ANSWER = "no page answers this"


def require_min_score(min_score: float | None, calibration: Calibration) -> None:
    """Refuse a least probability that is none, or that the calibration has nothing to compare with."""
    if min_score is None:
        return
    if not isinstance(min_score, int | float) or not 0.0 <= min_score <= 1.0:
        raise ScoreError(f"min_score is {min_score!r}, wanted a probability from 0 to 1")
    model = calibration.relevance
    if model is None or model.page is None:
        reason = "it was made before there were any; calibrate again" if model is None else model.note
        raise ScoreError(
            f"min_score needs probabilities of relevance, and the calibration has none: {reason}"
        )


def drop_improbable(ranking: Ranking, min_score: float | None) -> Ranking:
    """The ranking without pages whose probability is below `min_score`; the others keep their ranks.

    No page is left where the probability that any is relevant is below it: a page's looks at that page alone,
    the query's at the whole list, and no page can be more probable than that there is one.
    """
    if min_score is None or not ranking.pages:
        return ranking
    answered = ranking.answered.probability or 0.0
    if answered < min_score:
        return _without_pages(ranking, f"that any of {len(ranking.pages)} does has {answered:.2f}", min_score)
    probabilities = [page.probability or 0.0 for page in ranking.pages]
    pages = tuple(
        page
        for page, probability in zip(ranking.pages, probabilities, strict=True)
        if probability >= min_score
    )
    if pages:
        return replace(ranking, pages=pages)
    best = f"the most probable of {len(probabilities)} has {max(probabilities):.2f}"
    return _without_pages(ranking, best, min_score)


def _without_pages(ranking: Ranking, reason: str, min_score: float) -> Ranking:
    notes = (ranking.note, f"{NO_ANSWER}: {reason}, wanted {min_score:g}")
    return replace(ranking, pages=(), note="; ".join(note for note in notes if note))
