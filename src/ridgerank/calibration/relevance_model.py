"""How states become probabilities of relevance, and where that comes from; saved with a calibration."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, Self

import numpy as np

from ridgerank.fusion.relevance_probability import Logistic, page_features, query_features
from ridgerank.ragged import Floats, Ragged
from ridgerank.readout.target_readout import TargetReadout
from ridgerank.records import AnswerProbability


class Assessment(NamedTuple):
    """What is said of the candidates of one list."""

    pages: list[float] | None
    """The probability of each that it is relevant; None where nothing says so."""
    answered: AnswerProbability
    """That any of them is relevant."""
    predicted: list[float]
    """The target of each, as predicted."""


@dataclass(frozen=True, slots=True, eq=False)
class RelevanceModel:
    """The teacher's target, predicted from a state, and what it says of a page and of a list.

    `page` and `query` are None where nothing does: no judgements, and a target that is no yes or no.
    """

    readout: TargetReadout
    explained: float
    """Share of the target's variance that is predicted on lists the readout was not fitted on."""
    page: Logistic | None
    """Over `PAGE_FEATURES`."""
    query: Logistic | None
    """Over `QUERY_FEATURES`."""
    calibrated: bool
    """Fitted to judgements; otherwise the full model's own odds of yes, e to the predicted margin."""
    judged_queries: int
    """Queries with a relevant candidate that both were fitted to."""
    note: str
    """Where the probabilities come from, or why there are none."""

    def assess(self, states: Floats) -> Assessment:
        """What the states of one list's candidates, (K, dim), say of each and of all together."""
        predicted, lists = self.readout.predict(states), Ragged.of_lengths([len(states)])
        if self.page is None or self.query is None:
            return Assessment(None, AnswerProbability(), predicted.tolist())
        pages: list[float] = self.page.probabilities(page_features(predicted, lists)).tolist()
        [answered] = self.query.probabilities(query_features(predicted, lists)).tolist()
        return Assessment(pages, AnswerProbability(answered, self.calibrated), predicted.tolist())

    def facts(self) -> dict[str, Any]:
        """The model without its vector, as JSON has it."""
        return {
            "calibrated": self.calibrated,
            "judged_queries": self.judged_queries,
            "explained": self.explained,
            "penalty": self.readout.penalty,
            "intercept": self.readout.intercept,
            "page": None if self.page is None else asdict(self.page),
            "query": None if self.query is None else asdict(self.query),
            "note": self.note,
        }

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any], vector: Floats) -> Self:
        """The inverse of `facts`."""
        return cls(
            readout=TargetReadout(np.asarray(vector, np.float64), facts["intercept"], facts["penalty"]),
            explained=facts["explained"],
            page=_logistic(facts["page"]),
            query=_logistic(facts["query"]),
            calibrated=facts["calibrated"],
            judged_queries=facts["judged_queries"],
            note=facts["note"],
        )


def _logistic(facts: Mapping[str, Any] | None) -> Logistic | None:
    return None if facts is None else Logistic(facts["intercept"], tuple(facts["coefficients"]))
