"""§4.1: ranking quality against the retriever, the full cross encoder and the external baselines."""

from experiments.protocols.recovery import recovery
from experiments.reproduce import paper
from experiments.reproduce.analysis import Analysis
from experiments.reproduce.claims.claim import (
    NOT_MEASURED,
    STAND_IN_REASON,
    Claim,
    miniature_reason,
    published_value,
)
from ridgerank.evaluation.metrics import MEASURES

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
