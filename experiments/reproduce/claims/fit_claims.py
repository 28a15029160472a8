"""§4.4, §4.5, §B.3 and §B.4: what the parts of the fit are worth, and how little it needs."""

from statistics import fmean

import numpy as np

from experiments.reproduce import paper
from experiments.reproduce.analysis import Analysis
from experiments.reproduce.claims.claim import NOT_MEASURED, Claim, miniature_reason, published_value
from experiments.reproduce.studies.few_queries import refined_on_sample, study_few_queries
from experiments.reproduce.studies.layer_study import study_layers
from experiments.reproduce.studies.penalty_rules import compare_penalty_rules, sample_ndcg, sweep_sample
from experiments.reproduce.studies.significance import compare_differences
from experiments.reproduce.tables.ablation import component_quality

_COMPONENTS = {
    "fitted readout": ("the solve is worth 4.1 points over the logit lens", 4.1),
    "operating point": ("consuming the model score on its own costs 2.7 points", 2.7),
    "list centering": ("centering inside the candidate list is worth 0.6 points", 0.6),
}
_PENALTY_RANGE, _WEIGHT_RANGE = 1.6, 0.5


def check_components(analysis: Analysis) -> list[Claim]:
    """Table 3, of the first backbone on the calibration sample."""
    quality = component_quality(analysis)
    whole = fmean(quality["full"])
    reasons = {
        "operating point": (
            "the retrievers of the miniature are far below its rerankers: leaving one out costs less"
        )
    }
    claims = []
    for key, (claim, threshold) in _COMPONENTS.items():
        loss = whole - fmean(quality[key])
        holds = loss >= threshold
        claims.append(
            Claim(
                claim,
                "§4.4, table 3",
                f"at least {threshold} points",
                f"{loss:.2f} points: {fmean(quality[key]):.1f} against {whole:.1f} "
                f"({analysis.settings.backbones[0]})",
                holds,
                miniature_reason(analysis, holds, reasons.get(key, "")),
            )
        )
    return claims


def check_fit(analysis: Analysis) -> list[Claim]:
    """Layers, calibration queries, and the plateaus of λ and w."""
    backbones = analysis.settings.backbones
    return [
        *(_peak(analysis, backbone) for backbone in backbones),
        *(_penalty_plateau(analysis, backbone) for backbone in backbones),
        *(_weight_plateau(analysis, backbone) for backbone in backbones),
        *(_few(analysis, backbone) for backbone in backbones),
        *(_above_gqr(analysis, backbone) for backbone in backbones),
    ]


def _peak(analysis: Analysis, backbone: str) -> Claim:
    quality = study_layers(analysis, backbone).quality
    layers, peak = len(quality), int(np.argmax(quality)) + 1
    return Claim(
        f"accuracy by layer peaks before the last layer ({backbone})",
        "§4.5, figure 6",
        "the highest nDCG@5 at an earlier layer than the last",
        f"highest after {peak} of {layers} layers: {quality[peak - 1]:.1f}, after the last {quality[-1]:.1f}",
        peak < layers,
        miniature_reason(
            analysis,
            peak < layers,
            "a model of eight layers that was trained to answer in the last ones: none is superfluous",
        ),
    )


def _penalty_plateau(analysis: Analysis, backbone: str) -> Claim:
    deployed = analysis.readouts(backbone).choice.deployed
    values = [
        fmean(float(ndcg.mean()) for ndcg in sample_ndcg(analysis, backbone, penalty))
        for penalty in (deployed / 10, deployed, deployed * 10)
    ]
    return Claim(
        f"two decades of λ move ranking quality by less than {_PENALTY_RANGE} points ({backbone})",
        "§4.5",
        f"less than {_PENALTY_RANGE} points, from a tenth of the λ deployed to ten times it",
        f"{max(values) - min(values):.2f} points around λ = {deployed:g}",
        max(values) - min(values) < _PENALTY_RANGE,
    )


def _weight_plateau(analysis: Analysis, backbone: str) -> Claim:
    sweep = sweep_sample(analysis, backbone)
    best = int(np.argmax(sweep.means))
    nearest = sweep.means[max(best - 1, 0) : best + 2]
    moved = float(nearest.max() - nearest.min())
    return Claim(
        f"the weights nearest the best move ranking quality by less than half a point ({backbone})",
        "§4.5",
        f"less than {_WEIGHT_RANGE} points, one step of 0.05 to either side, on the calibration sample",
        f"{moved:.2f} points around w = {sweep.weights[best]:.2f}",
        moved < _WEIGHT_RANGE,
    )


def _few(analysis: Analysis, backbone: str) -> Claim:
    published = paper.look_up("text", "secB.3", "share_of_all_percent")
    threshold = published_value(backbone, published)
    study = study_few_queries(analysis, backbone)
    measured, holds = NOT_MEASURED, False
    if 16 in study.sizes:
        share, row = study.share(16), study.quality[study.sizes.index(16)]
        measured = (
            f"{share:.1f} %, standard deviation of {len(row)} draws {100 * row.std() / study.everything:.1f}"
        )
        holds = share >= threshold
    return Claim(
        f"sixteen calibration queries reach {threshold} % of the quality obtained from all ({backbone})",
        "§4.5, §B.3, figure 8",
        f"at least {threshold} %",
        measured,
        holds,
    )


def _above_gqr(analysis: Analysis, backbone: str) -> Claim:
    refined, study = refined_on_sample(analysis), study_few_queries(analysis, backbone)
    means = study.quality.mean(axis=1)
    return Claim(
        f"with any number of calibration queries RidgeRank is above GQR ({backbone})",
        "§B.3, figure 8",
        "above GQR on the same queries at every size",
        NOT_MEASURED
        if refined is None
        else f"{means.min():.1f} at {study.sizes[int(np.argmin(means))]} queries, the lowest, against "
        f"{refined:.1f}",
        refined is not None and bool(means.min() > refined),
    )


def check_penalty(analysis: Analysis) -> list[Claim]:
    """§B.4: λ by the teacher alone is no worse than λ by judgements."""
    claims = []
    for backbone in analysis.settings.backbones:
        rules = compare_penalty_rules(analysis, backbone)
        teacher, labels = rules["teacher"], rules["judgements"]
        parts = [mine - other for mine, other in zip(teacher.ndcg, labels.ndcg, strict=True)]
        compared = compare_differences(parts, seed=analysis.settings.seed)
        holds = teacher.quality >= labels.quality
        within = compared.low <= 0.0 <= compared.high
        reason = (
            f"the interval holds 0: {compared.queries} queries cannot tell the two rules apart"
            if within
            else ""
        )
        claims.append(
            Claim(
                f"λ by the teacher alone is at least as good as λ by judgements ({backbone})",
                "§B.4, table 7",
                "at least the nDCG@5 of the labelled rule (paper: 74.7 and 74.7, 72.3 and 71.3)",
                f"{teacher.quality:.1f} against {labels.quality:.1f} (95 % of the difference: "
                f"{compared.low:+.2f} to {compared.high:+.2f})",
                holds,
                "" if holds else reason,
            )
        )
    return claims
