"""The paper's claims about the weight (§4.3, §B.2, §B.6) and the fit (§4.4, §4.5, §B.3, §B.4)."""

from statistics import fmean, median

import numpy as np

from experiments.reproduce import paper
from experiments.reproduce.analysis import Analysis
from experiments.reproduce.claims.quality_claims import NOT_MEASURED, Claim, miniature_reason, published_value
from experiments.reproduce.studies.depth_and_layer import study_layers
from experiments.reproduce.studies.sampling import (
    compare_penalty_rules,
    refined_on_sample,
    sample_ndcg,
    study_few_queries,
    sweep_sample,
)
from experiments.reproduce.studies.significance import compare_differences
from experiments.reproduce.studies.weight_rules import (
    FEW,
    Validation,
    compare_weight_rules,
    sweep_corpus,
    validate,
)
from experiments.reproduce.tables.ablation import component_quality
from experiments.reproduce.tables.weights import is_best_at_one, is_tied_at_one

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


_RETRIEVER_REASON = (
    "the retrievers of the miniature are so far below its cross encoders that on some corpora their score "
    "adds little or nothing"
)


def check_theory(analysis: Analysis) -> list[Claim]:
    """The two propositions, and fusion at full depth."""
    validation = validate(analysis)
    published = paper.look_up("text", "sec4.3")
    return [
        _interior(analysis, validation, published["least_partial"]),
        *_correlation(analysis, validation),
        _weaker_retriever(analysis, validation),
        *_alignment(analysis),
        *_full_depth(analysis),
    ]


def _interior(analysis: Analysis, validation: Validation, threshold: float) -> Claim:
    count = len(validation.subsets)
    holds = validation.interior == count and validation.least_partial >= threshold
    worst = min(validation.subsets, key=lambda subset: subset.least_partial)
    short = [subset for subset in validation.subsets if subset.least_partial < threshold]
    # Above a half, w* is larger than 1 − w*: the smaller of the two is the retriever's.
    by_retriever = sum(subset.predicted > 0.5 for subset in short)
    reason = (
        f"on {by_retriever} of {len(short)} it is the retriever's part that is small: {_RETRIEVER_REASON}"
    )
    return Claim(
        f"all {count} optima are interior: c_b − ρc_s and c_s − ρc_b are at least {threshold}",
        "§4.3",
        f"at least {threshold} on every subset (paper: 72 subsets)",
        f"{validation.interior} of {count} predicted optima are interior; the least is "
        f"{validation.least_partial:.3f} ({worst.method}, {worst.corpus} behind {worst.retriever}); "
        f"{count - len(short)} subsets reach {threshold}",
        holds,
        miniature_reason(analysis, holds, reason),
    )


def _correlation(analysis: Analysis, validation: Validation) -> list[Claim]:
    published = paper.look_up("text", "sec4.3")
    sizes = [len(analysis.experiment.corpus(key).queries) for key in analysis.experiment.corpus_keys()]
    spread = f"{validation.measured.min():.2f} to {validation.measured.max():.2f}"
    few = (
        f"{np.mean(sizes):.0f} queries per corpus against the paper's 481, and measured weights from "
        f"{spread} only: noise is large beside what differs between subsets"
    )
    reliable = (validation.reliability_predicted, validation.reliability_measured)
    limits = (published["reliability_predicted"], published["reliability_measured"])
    correlated = validation.correlation >= published["correlation"]
    steady = all(value >= limit for value, limit in zip(reliable, limits, strict=True))
    return [
        Claim(
            f"predicted and measured weights correlate at {published['correlation']}",
            "§4.3, figure 4",
            f"at least {published['correlation']}",
            f"{validation.correlation:.3f} over {len(validation.subsets)} subsets; geometric mean of the "
            f"reliabilities {validation.ceiling:.3f} (paper: {published['ceiling']})",
            correlated,
            miniature_reason(analysis, correlated, few),
        ),
        Claim(
            f"predicted and measured weights are reliable at {limits[0]} and {limits[1]}",
            "§4.3",
            f"at least {limits[0]} and {limits[1]}, over {analysis.settings.splits} random half splits",
            f"{reliable[0]:.3f} and {reliable[1]:.3f}",
            steady,
            miniature_reason(analysis, steady, few),
        ),
    ]


def _weaker_retriever(analysis: Analysis, validation: Validation) -> Claim:
    retrievers = analysis.settings.retrievers
    quality = {
        retriever: fmean(
            analysis.result(family, retriever, "retriever").macro()
            for family in range(len(analysis.settings.families))
        )
        for retriever in retrievers
    }
    weights = {
        retriever: (
            fmean(subset.predicted for subset in validation.subsets if subset.retriever == retriever),
            fmean(subset.measured for subset in validation.subsets if subset.retriever == retriever),
        )
        for retriever in retrievers
    }
    strong, weak = max(retrievers, key=quality.__getitem__), min(retrievers, key=quality.__getitem__)
    said = "; ".join(f"{name} {pair[0]:.3f} and {pair[1]:.3f}" for name, pair in weights.items())
    return Claim(
        "the weaker retriever leaves more weight to the reranker",
        "§4.3",
        "a higher mean weight, predicted and measured",
        f"predicted and measured: {said}" if strong != weak else NOT_MEASURED,
        all(low > high for low, high in zip(weights[weak], weights[strong], strict=True)),
    )


def _alignment(analysis: Analysis) -> list[Claim]:
    published = paper.look_up("text", "sec4.3", "alignment")
    values = [
        value
        for backbone in analysis.settings.backbones
        for value in study_layers(analysis, backbone).alignment()
    ]
    said = (
        f"from {min(values):.3f} to {max(values):.3f}, median {median(values):.3f} over {len(values)} "
        "pairings of backbone and corpus"
    )
    return [
        Claim(
            "r, agreement with the full model, and c_s, with relevance, correlate at "
            f"{published[key]} {words}",
            "§4.3, figure 5",
            f"at least {published[key]} (paper: {published['least']} to {published['most']})",
            said,
            value >= published[key],
        )
        for key, words, value in (
            ("least", "at least", min(values)),
            ("median", "in the median", float(np.median(values))),
        )
    ]


def _full_depth(analysis: Analysis) -> list[Claim]:
    published = paper.look_up("text", "secB.2")
    subsets = [
        (
            f"{analysis.experiment.corpus(corpus_key).name} behind {retriever}",
            sweep_corpus(analysis, corpus_key, retriever, None, 0),
        )
        for corpus_key in analysis.experiment.corpus_keys()
        for retriever in analysis.settings.retrievers
    ]
    at_one = [name for name, sweep in subsets if is_best_at_one(sweep)]
    tied = sum(is_tied_at_one(sweep) for _, sweep in subsets)
    losses = [float(sweep.means.max() - sweep.means[-1]) for _, sweep in subsets]
    costs = fmean(losses) >= published["mean_loss"]
    return [
        Claim(
            "no subset attains the optimum of the fused full cross encoder at w = 1",
            "§B.2, table 6",
            "none, ties counted (paper: 0 of 24)",
            f"{len(at_one)} of {len(subsets)}, {tied} of them tied with a smaller weight"
            + (f": {', '.join(at_one)}" if at_one else "")
            + f"; median best weight {median(sweep.best for _, sweep in subsets):.3f} (paper: "
            f"{published['median']:.2f})",
            not at_one,
            miniature_reason(analysis, not at_one, _RETRIEVER_REASON),
        ),
        Claim(
            f"ranking by the cross encoder alone loses {published['mean_loss']} points on average",
            "§B.2",
            f"at least {published['mean_loss']} points (paper: up to {published['largest_loss']})",
            f"{fmean(losses):.1f} points on average, at most {max(losses):.1f}",
            costs,
            miniature_reason(analysis, costs, _RETRIEVER_REASON),
        ),
    ]


def check_label_free(analysis: Analysis) -> list[Claim]:
    """Averages over families, retrievers and backbones, as in table 9."""
    settings, published = analysis.settings, paper.look_up("table9_average")
    rules = [
        compare_weight_rules(analysis, family, retriever, backbone)
        for family in range(len(settings.families))
        for retriever in settings.retrievers
        for backbone in settings.backbones
    ]
    deployed = fmean(rule.closed_form for rule in rules)
    measured = {
        "label free": fmean(rule.label_free for rule in rules),
        "label free 16": fmean(fmean(rule.few) for rule in rules),
    }
    edges = 100 * fmean(rule.edge for rule in rules)
    reason = (
        "readout and third score share errors, against the one-factor model's assumption: it puts a "
        f"correlation above 1 in {edges:.0f} % of the cases, and takes it for 1"
    )
    claims = []
    for key, words in (("label free", "all queries"), ("label free 16", f"{FEW} queries")):
        allowed = round(published["closed form"] - published[key], 1)
        holds = deployed - measured[key] <= allowed
        claims.append(
            Claim(
                f"the weight without judgements, from {words}, is {allowed} points below the judged one",
                "§B.6, table 9",
                f"at most {allowed} points below on average (paper: {published[key]} against "
                f"{published['closed form']})",
                f"{measured[key]:.2f} against {deployed:.2f}: {deployed - measured[key]:.2f} points below",
                holds,
                miniature_reason(analysis, holds, reason),
            )
        )
    return claims
