"""What the paper claims, tried on what was measured here: holds, or does not."""

from dataclasses import dataclass

import numpy as np

from experiments.reproduce.analysis import Analysis
from experiments.reproduce.studies.few_queries import study_few_queries
from experiments.reproduce.studies.layer_study import study_layers
from experiments.reproduce.studies.weight_validation import sweep_corpus, validate
from experiments.reproduce.tables.fused_full_depth import is_best_at_one

EXTERNAL = ("RRF", "Score Aggregation", "GQR", "text reranker", "image reranker")


@dataclass(frozen=True, slots=True)
class Claim:
    """One claim."""

    claim: str
    holds: bool
    found: str
    """The figures it was decided by."""


def check_claims(analysis: Analysis) -> list[Claim]:
    """Every claim that the report speaks about."""
    return [
        *_above_external(analysis),
        _fused_full(analysis),
        _weights(analysis),
        _alignment(analysis),
        *_few(analysis),
    ]


def _above_external(analysis: Analysis) -> list[Claim]:
    """RidgeRank above every baseline; those that are not below it are named."""
    settings = analysis.settings
    claims = []
    for backbone in settings.backbones:
        below, whole, compared, missing = [], 0, 0, set()
        for family, benchmark in enumerate(settings.families):
            for retriever in settings.retrievers:
                ours = analysis.result(family, retriever, f"ours {backbone}").macro()
                for method in analysis.results(family, retriever):
                    if method.key not in EXTERNAL:
                        continue
                    if not method.by_corpus:
                        missing.add(method.name)
                        continue
                    compared += 1
                    if method.macro() >= ours:
                        whole += method.key == "image reranker" and settings.baselines == "miniature"
                        where = f"{benchmark.name} behind {retriever}"
                        below.append(f"{method.name} {method.macro():.1f} against {ours:.1f} ({where})")
        evidence = f"above in {compared - len(below)} of {compared} comparisons"
        evidence += f"; not above {'; '.join(below)}" if below else ""
        if whole:  # what stands in for the image reranker on the miniature is no small model
            stand_in = "the image reranker's stand-in, itself a full cross encoder"
            evidence += f" ({whole} of these {len(below)} are {stand_in})"
        evidence += f"; not run: {', '.join(sorted(missing))}" if missing else ""
        claim = f"RidgeRank ({backbone}) is above every external baseline"
        claims.append(Claim(claim, not below and compared > 0, evidence))
    return claims


def _fused_full(analysis: Analysis) -> Claim:
    subsets = [
        (
            analysis.experiment.corpus(corpus_key).name,
            retriever,
            sweep_corpus(analysis, corpus_key, retriever, None, 0),
        )
        for corpus_key in analysis.experiment.corpus_keys()
        for retriever in analysis.settings.retrievers
    ]
    best = [f"{corpus} behind {retriever}" for corpus, retriever, sweep in subsets if is_best_at_one(sweep)]
    evidence = f"{len(best)} of {len(subsets)} subsets are best at w = 1"
    return Claim(
        "the full cross encoder, fused, is best at w = 1 on no subset",
        not best,
        evidence + (f": {', '.join(best)}" if best else ""),
    )


def _weights(analysis: Analysis) -> Claim:
    validation = validate(analysis)
    return Claim(
        "predicted and measured weights correlate at 0.85 or more",
        validation.correlation >= 0.85,
        f"{validation.correlation:.3f} over {len(validation.subsets)} subsets; reliabilities "
        f"{validation.reliability_predicted:.3f} (predicted) and "
        f"{validation.reliability_measured:.3f} (measured)",
    )


def _alignment(analysis: Analysis) -> Claim:
    values = [
        value
        for backbone in analysis.settings.backbones
        for value in study_layers(analysis, backbone).alignment()
    ]
    return Claim(
        "agreement with the full model (r) and with relevance (c_s) correlate at 0.9 or more, in the median",
        float(np.median(values)) >= 0.9,
        f"median {np.median(values):.3f}, from {min(values):.3f} to {max(values):.3f} over {len(values)} "
        "pairings "
        "of backbone and corpus",
    )


def _few(analysis: Analysis) -> list[Claim]:
    claims = []
    for backbone in analysis.settings.backbones:
        study = study_few_queries(analysis, backbone)
        claim = f"sixteen calibration queries reach 97 % of what all do ({backbone})"
        if 16 not in study.sizes:
            claims.append(Claim(claim, False, "fewer than sixteen queries to draw from: not measured"))
            continue
        share = study.share(16)
        claims.append(Claim(claim, share >= 97.0, f"{share:.1f} %"))
    return claims
