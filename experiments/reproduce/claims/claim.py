"""A claim of the paper, its threshold, and what was measured here."""

from collections.abc import Mapping
from dataclasses import dataclass

from experiments.reproduce import paper
from experiments.reproduce.analysis import Analysis

STAND_IN_REASON = (
    "mini-glm at full depth stands in for MonoQwen2-VL: a full cross encoder, and the teacher of RidgeRank "
    "on mini-glm; no reranker as small beside its backbone as MonoQwen2-VL is at hand"
)
NOT_MEASURED = "not measured in this run"


@dataclass(frozen=True, slots=True)
class Claim:
    """One claim; `directions.json` has these fields."""

    claim: str
    where: str
    """Section, table or figure of the paper."""
    threshold: str
    """What the paper's own figure demands."""
    measured: str
    """The figures it was decided by."""
    holds: bool
    reason: str = ""
    """Why it does not hold, where that is known."""


def published_value(backbone: str, values: Mapping[str, float]) -> float:
    """The paper's figure for a backbone or what it stands in for; for a model it does not have, the lower."""
    return values.get(paper.model_name(backbone) or "", min(values.values()))


def miniature_reason(analysis: Analysis, holds: bool, reason: str) -> str:
    """A reason that is known of the embedded models, where the claim does not hold for them."""
    return reason if not holds and analysis.settings.baselines == "miniature" else ""
