"""§4.5 and §B.5: pools of every depth, with the readouts frozen."""

from collections.abc import Callable
from itertools import pairwise

from experiments.reproduce.analysis import Analysis
from experiments.reproduce.claims.claim import NOT_MEASURED, Claim, miniature_reason, published_value
from experiments.reproduce.studies.depth_study import DepthStudy, study_depths

_BASELINES = ("RRF", "Score Aggregation", "text reranker")
_LEAD, _LEAD_FROM = 5.0, 10
_FLATNESS = {"Qwen2.5-VL-7B": 1.2, "GLM-4.1V-9B": 0.7}
"""How far the paper's own curve moves from K = 20 to 100 (table 8)."""


def check_pools(analysis: Analysis) -> list[Claim]:
    """Climbing to the deployed depth, flat above it, ahead of the baselines at every depth."""
    study = study_depths(analysis)
    backbones = analysis.settings.backbones
    return [
        *(_climbs(analysis, study, backbone) for backbone in backbones),
        *(_flat(analysis, study, backbone) for backbone in backbones),
        *(_ahead(analysis, study, backbone) for backbone in backbones),
    ]


def _climbs(analysis: Analysis, study: DepthStudy, backbone: str) -> Claim:
    deployed = analysis.settings.candidates
    curve = _curve(study, backbone, lambda depth: depth <= deployed)
    values = list(curve.values())
    steps = [later - earlier for earlier, later in pairwise(values)]
    return Claim(
        f"ranking quality climbs up to the {deployed} candidates deployed ({backbone})",
        "§4.5, figure 7",
        "higher at every depth than at the one before",
        ", ".join(f"{depth}: {value:.1f}" for depth, value in curve.items()),
        bool(steps) and min(steps) > 0,
    )


def _flat(analysis: Analysis, study: DepthStudy, backbone: str) -> Claim:
    deployed = analysis.settings.candidates
    curve = _curve(study, backbone, lambda depth: depth >= deployed)
    limit = published_value(backbone, _FLATNESS)
    moved = {depth: value - curve[deployed] for depth, value in curve.items()} if deployed in curve else {}
    furthest = max(moved, key=lambda depth: abs(moved[depth]), default=None)
    holds = len(moved) > 1 and furthest is not None and abs(moved[furthest]) <= limit
    rises = "it rises: deeper pools bring in relevant pages that the retriever puts below the first twenty"
    reason = rises if furthest is not None and moved[furthest] > 0 else ""
    return Claim(
        f"ranking quality is flat from {deployed} to {max(study.depths)} candidates ({backbone})",
        "§4.5, figure 7, table 8",
        f"within {limit} points of the depth deployed, as far as the paper's own curve moves",
        NOT_MEASURED
        if furthest is None
        else f"{moved[furthest]:+.1f} points at {furthest} candidates, the furthest",
        holds,
        miniature_reason(analysis, holds, reason),
    )


def _ahead(analysis: Analysis, study: DepthStudy, backbone: str) -> Claim:
    ours = study.quality[f"ours {backbone}"]
    present = [study.quality[key] for key in _BASELINES if key in study.quality]
    leads = {
        depth: ours[row] - max(values[row] for values in present)
        for row, depth in enumerate(study.depths)
        if present
    }
    deep = [lead for depth, lead in leads.items() if depth >= _LEAD_FROM]
    holds = len(present) == len(_BASELINES) and min(leads.values()) > 0 and bool(deep) and min(deep) >= _LEAD
    measured = f"{min(leads.values()):.1f} points at least" if leads else NOT_MEASURED
    measured += f", {min(deep):.1f} from {_LEAD_FROM} candidates onward" if deep else ""
    measured += "".join(f"; not run: {name}" for name in study.why)
    return Claim(
        f"at every depth RidgeRank ({backbone}) ranks above all three external baselines",
        "§B.5, table 8",
        f"above at every depth, by at least {_LEAD} points from {_LEAD_FROM} candidates onward",
        measured,
        holds,
    )


def _curve(study: DepthStudy, backbone: str, chosen: Callable[[int], bool]) -> dict[int, float]:
    values = study.quality[f"ours {backbone}"]
    return {depth: value for depth, value in zip(study.depths, values, strict=True) if chosen(depth)}
