"""The paper's claims about quality (§4.1), cost (§4.2) and pools of every depth (§4.5, §B.5)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from experiments.protocols import recovery
from experiments.reproduce import paper
from experiments.reproduce.analysis import Analysis
from experiments.reproduce.method_results import MethodResult, interval_95
from experiments.reproduce.studies.depth_and_layer import DepthStudy, study_depths
from ridgerank.evaluation.metrics import MEASURES

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


EXTERNAL = ("RRF", "Score Aggregation", "GQR", "text reranker", "image reranker")
_RECOVERY = {
    (0, 0): {"Qwen2.5-VL-7B": 70.0, "GLM-4.1V-9B": 89.0},
    (0, 1): {"Qwen2.5-VL-7B": 85.0, "GLM-4.1V-9B": 91.0},
    (1, 1): {"Qwen2.5-VL-7B": 82.0, "GLM-4.1V-9B": 82.0},
}
"""Family and retriever → the percentages of §4.1."""


def check_quality(analysis: Analysis) -> list[Claim]:
    """The gap to the cross encoder, the share recovered, the retriever and the baselines."""
    settings = analysis.settings
    gaps = paper.look_up("text", "sec4.1", "gaps_to_full_cross_encoder_pp")
    return [
        *(
            _gap(analysis, number, gap)
            for number, gap in zip(range(len(settings.retrievers)), gaps, strict=False)
        ),
        *(
            _recovered(analysis, family, number, backbone)
            for family, number in _RECOVERY
            if family < len(settings.families) and number < len(settings.retrievers)
            for backbone in settings.backbones
        ),
        *(_improves(analysis, backbone) for backbone in settings.backbones),
        *(_leads(analysis, backbone) for backbone in settings.backbones),
    ]


def _gap(analysis: Analysis, number: int, threshold: float) -> Claim:
    settings = analysis.settings
    retriever = settings.retrievers[number]
    reference = analysis.result(0, retriever, "cross encoder").macro()
    gaps = {
        backbone: reference - analysis.result(0, retriever, f"ours {backbone}").macro()
        for backbone in settings.backbones
    }
    measured = "; ".join(f"{backbone} {-gap:+.1f} points" for backbone, gap in gaps.items())
    wholes = {name: analysis.full_depth(0, retriever, name).macro() for name in settings.backbones[1:]}
    others = [
        f"{name} {reference - gaps[name] - whole:+.1f} against its own cross encoder"
        for name, whole in wholes.items()
    ]
    return Claim(
        f"RidgeRank comes within {threshold} points of the full cross encoder, behind {retriever}",
        "abstract, §4.1" if number == 0 else "§4.1",
        f"at most {threshold} points below, of the better backbone",
        "; ".join([measured, *others]),
        min(gaps.values()) <= threshold,
    )


def _recovered(analysis: Analysis, family: int, number: int, backbone: str) -> Claim:
    settings = analysis.settings
    retriever = settings.retrievers[number]
    base = analysis.result(family, retriever, "retriever").macro()
    reference = analysis.result(family, retriever, "cross encoder").macro()
    ours = analysis.result(family, retriever, f"ours {backbone}").macro()
    share = recovery(base, ours, reference)
    whole = analysis.full_depth(family, retriever, backbone).macro()
    threshold = published_value(backbone, _RECOVERY[family, number])
    name = settings.families[family].name
    return Claim(
        f"RidgeRank ({backbone}) closes {threshold:g} % of the cross encoder's gain on {name}, behind "
        f"{retriever}",
        "§4.1",
        f"at least {threshold:g} %",
        f"{share:.1f} % of the gain of the paper's single reference, {recovery(base, ours, whole):.1f} % of "
        "that of its own cross encoder",
        share >= threshold,
    )


def _improves(analysis: Analysis, backbone: str) -> Claim:
    gains = [
        analysis.result(family, retriever, f"ours {backbone}").macro()
        - analysis.result(family, retriever, "retriever").macro()
        for family in range(len(analysis.settings.families))
        for retriever in analysis.settings.retrievers
    ]
    return Claim(
        f"RidgeRank ({backbone}) improves on the retriever in every setting",
        "§4.1",
        "above 0 in each family behind each retriever (paper: 3.0 to 15.8 points)",
        f"{min(gains):.1f} to {max(gains):.1f} points in {len(gains)} settings",
        min(gains) > 0,
    )


def _leads(analysis: Analysis, backbone: str) -> Claim:
    """Under every measure; the baselines that are not below it are named."""
    settings = analysis.settings
    behind: dict[str, int] = {}
    compared, missing = 0, set()
    for family in range(len(settings.families)):
        for retriever in settings.retrievers:
            ours = analysis.result(family, retriever, f"ours {backbone}")
            for method in analysis.results(family, retriever):
                if method.key not in EXTERNAL:
                    continue
                if not method.by_corpus:
                    missing.add(method.name)
                    continue
                for measure in MEASURES:
                    compared += 1
                    if method.macro(measure) >= ours.macro(measure):
                        behind[method.name] = behind.get(method.name, 0) + 1
    lost = sum(behind.values())
    holds = compared > 0 and not lost and not missing
    measured = f"above in {compared - lost} of {compared} comparisons"
    measured += "".join(f"; not above {name} in {count}" for name, count in behind.items())
    measured += f"; not run: {', '.join(sorted(missing))}" if missing else ""
    stand_in = sum(count for name, count in behind.items() if "stands in for MonoQwen2-VL" in name)
    reason = f"{stand_in} of the {lost}: {STAND_IN_REASON}" if stand_in else ""
    return Claim(
        f"RidgeRank ({backbone}) leads every external baseline under all measures",
        "§4.1, table 5",
        f"above in each family, behind each retriever, under {', '.join(MEASURES)}",
        measured if compared else NOT_MEASURED,
        holds,
        miniature_reason(analysis, holds, reason),
    )


_SPEEDUP = 48.0
_SHARE_ABOVE_GQR = 65.0
_MARGIN_SECOND_FAMILY = 1.6
_LAYERS_REASON = (
    "the embedded models leave after 6 of 8 layers, GLM-4.1V-9B after 21 of 40; times are of a CPU"
)


def check_cost(analysis: Analysis) -> list[Claim]:
    """Speed against the cross encoder, against GQR, and where the time goes."""
    claims = [_speedup(analysis, 0)]
    if len(analysis.settings.families) > 1:
        claims.append(_speedup(analysis, 1))
    return [*claims, *_against_gqr(analysis), _computes_less(analysis), _frontier(analysis)]


def _speedup(analysis: Analysis, family: int) -> Claim:
    """The abstract's 48 times; of the second family the slower backbone's 7534 ms / 233 ms."""
    settings = analysis.settings
    retriever = settings.retrievers[0]
    reference = analysis.result(family, retriever, "cross encoder")
    speedups, said = [], []
    for backbone in settings.backbones:
        ours = analysis.result(family, retriever, f"ours {backbone}")
        ratio, (low, high) = _ratio(reference, ours, settings.seed)
        speedups.append(ratio)
        said.append(
            f"{backbone} {ratio:.1f} times ({low:.1f} to {high:.1f}) at nDCG@5 {ours.macro():.1f} of "
            f"{reference.macro():.1f}"
        )
    second = paper.look_up("text", "sec4.2", "latency_ms_second_family")
    least = _SPEEDUP if family == 0 else second["cross encoder"] / max(second["ours"])
    holds = (max(speedups) if family == 0 else min(speedups)) >= least
    name = settings.families[family].name
    return Claim(
        f"RidgeRank is up to {least:g} times as fast as the full cross encoder"
        if family == 0
        else f"both backbones are at least {least:.1f} times as fast as the full cross encoder on {name}",
        "abstract, §4.2, table 4" if family == 0 else "§4.2",
        f"at least {least:.4g} times, of the {'faster' if family == 0 else 'slower'} backbone",
        "; ".join(said),
        holds,
        miniature_reason(analysis, holds, _LAYERS_REASON),
    )


def _ratio(reference: MethodResult, ours: MethodResult, seed: int) -> tuple[float, tuple[float, float]]:
    assert reference.latency is not None
    assert ours.latency is not None
    draws = reference.latency.redraw(seed + 1) / ours.latency.redraw(seed)
    return reference.latency.total_ms / ours.latency.total_ms, interval_95(draws)


def _against_gqr(analysis: Analysis) -> list[Claim]:
    settings = analysis.settings
    retriever = settings.retrievers[0]
    names = (
        f"RidgeRank closes {_SHARE_ABOVE_GQR:g} percentage points more of the distance than GQR",
        "RidgeRank costs 11 ms in 130 more than GQR",
        "RidgeRank is above GQR on the second family, by less than on the first",
    )
    limits = (
        f"at least {_SHARE_ABOVE_GQR:g} points more, of the better backbone",
        "at most 141 ms / 130 ms = 1.08 times GQR's time, of the faster backbone",
        f"at least {_MARGIN_SECOND_FAMILY} points, of the better backbone, and less than on the first",
    )
    refined = analysis.result(0, retriever, "GQR")
    if not refined.by_corpus or refined.latency is None:
        pairs = zip(names, limits, strict=True)
        return [Claim(name, "§4.2", limit, NOT_MEASURED, False, refined.why) for name, limit in pairs]
    base = analysis.result(0, retriever, "retriever").macro()
    whole = analysis.result(0, retriever, "cross encoder").macro()
    ours = [analysis.result(0, retriever, f"ours {backbone}") for backbone in settings.backbones]
    share = recovery(base, max(each.macro() for each in ours), whole)
    refined_share = recovery(base, refined.macro(), whole)
    faster = min((each for each in ours if each.latency), key=lambda each: each.latency.total_ms)  # type: ignore[union-attr]
    assert faster.latency is not None
    ratio = faster.latency.total_ms / refined.latency.total_ms
    claims = [
        Claim(
            names[0], "§4.2", limits[0], f"{share:.1f} % against {refined_share:.1f} %: "
            f"{share - refined_share:.1f} points more", share - refined_share >= _SHARE_ABOVE_GQR,
        ),
        Claim(
            names[1], "§4.2", limits[1], f"{ratio:.2f} times, at nDCG@5 {faster.macro():.1f} against "
            f"{refined.macro():.1f}", ratio <= 141 / 130,
        ),
    ]  # fmt: skip
    if len(settings.families) > 1:
        margins = [
            max(analysis.result(family, retriever, f"ours {name}").macro() for name in settings.backbones)
            - analysis.result(family, retriever, "GQR").macro()
            for family in (0, 1)
        ]
        holds = _MARGIN_SECOND_FAMILY <= margins[1] < margins[0]
        said = f"{margins[1]:.1f} points on the second family, {margins[0]:.1f} on the first"
        claims.append(Claim(names[2], "§4.2", limits[2], said, holds))
    return claims


def _computes_less(analysis: Analysis) -> Claim:
    """Figure 3: computing alone, without retrieval and reading."""
    settings = analysis.settings
    methods = {method.key: method for method in analysis.results(0, settings.retrievers[0])}
    ours = [methods[f"ours {backbone}"].latency for backbone in settings.backbones]
    slowest = max(latency.compute_ms for latency in ours if latency is not None)
    others = {
        methods[key].name: methods[key].latency
        for key in ("text reranker", "image reranker", "cross encoder")
        if key in methods
    }
    times = {name: latency.compute_ms for name, latency in others.items() if latency is not None}
    holds = len(times) == 3 and all(slowest < time for time in times.values())
    reason = (
        "the sequential dependence model stands in for Qwen3-Reranker-0.6B: it counts words and runs no model"
    )
    return Claim(
        "RidgeRank computes less than both trained rerankers and the full cross encoder",
        "§4.2, figure 3",
        "less than each (paper: 56 ms against 282 ms, 2.6 s and 6.7 s)",
        f"{slowest:.1f} ms, the slower backbone, against "
        + ", ".join(f"{time:,.1f} ms ({name})" for name, time in times.items()),
        holds,
        miniature_reason(analysis, holds, reason),
    )


def _frontier(analysis: Analysis) -> Claim:
    """Figure 2: nothing external is both as good and as fast."""
    settings = analysis.settings
    results = analysis.results(0, settings.retrievers[0])
    externals = [each for each in results if each.key in EXTERNAL and each.by_corpus and each.latency]
    beaten = [
        f"{other.name} is as good and as fast as RidgeRank ({backbone})"
        for backbone in settings.backbones
        for ours in results
        if ours.key == f"ours {backbone}" and ours.latency is not None
        for other in externals
        if other.latency is not None
        and other.macro() >= ours.macro()
        and other.latency.total_ms <= ours.latency.total_ms
    ]
    return Claim(
        "both backbones are on the frontier of accuracy and latency",
        "abstract, §4.2, figure 2",
        "no external baseline is as good and as fast",
        "; ".join(beaten) or f"none of {len(externals)} baselines",
        bool(externals) and not beaten,
    )


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
