"""What the paper claims, tried on what was measured here: holds, or does not."""

from dataclasses import dataclass

import numpy as np

from experiments.reproduce.analysis import Analysis
from experiments.reproduce.protocol.few_queries import study_few_queries
from experiments.reproduce.protocol.layer_study import study_layers
from experiments.reproduce.tables.fused_full_depth import at_one
from experiments.reproduce.validation import swept, validate

EXTERNAL = ("RRF", "Score Aggregation", "GQR", "text reranker", "image reranker")


@dataclass(frozen=True, slots=True)
class Direction:
    """One claim."""

    claim: str
    holds: bool
    found: str
    """The figures it was decided by."""


def directions(analysis: Analysis) -> list[Direction]:
    """Every claim that the report speaks about."""
    return [
        *_above_external(analysis),
        _fused_full(analysis),
        _weights(analysis),
        _alignment(analysis),
        *_few(analysis),
    ]


def _above_external(analysis: Analysis) -> list[Direction]:
    """RidgeRank above every arm that is not ours; which arms are not, is said."""
    settings = analysis.settings
    made = []
    for backbone in settings.backbones:
        below, whole, compared, missing = [], 0, 0, set()
        for family, benchmark in enumerate(settings.families):
            for retriever in settings.retrievers:
                ours = analysis.line(family, retriever, f"ours {backbone}").macro()
                for line in analysis.lines(family, retriever):
                    if line.key not in EXTERNAL:
                        continue
                    if not line.outcomes:
                        missing.add(line.name)
                        continue
                    compared += 1
                    if line.macro() >= ours:
                        whole += line.key == "image reranker" and settings.arms == "miniature"
                        where = f"{benchmark.name} behind {retriever}"
                        below.append(f"{line.name} {line.macro():.1f} against {ours:.1f} ({where})")
        found = f"above in {compared - len(below)} of {compared} comparisons"
        found += f"; not above {'; '.join(below)}" if below else ""
        if whole:  # what stands in for the image reranker on the miniature is no small model
            stand_in = "the image reranker's stand-in, itself a full cross encoder"
            found += f" ({whole} of these {len(below)} are {stand_in})"
        found += f"; not run: {', '.join(sorted(missing))}" if missing else ""
        claim = f"RidgeRank ({backbone}) is above every external baseline"
        made.append(Direction(claim, not below and compared > 0, found))
    return made


def _fused_full(analysis: Analysis) -> Direction:
    subsets = [
        (analysis.lab.corpus(site).name, retriever, swept(analysis, site, retriever, None, 0))
        for site in analysis.lab.sites()
        for retriever in analysis.settings.retrievers
    ]
    best = [f"{corpus} behind {retriever}" for corpus, retriever, sweep in subsets if at_one(sweep)]
    found = f"{len(best)} of {len(subsets)} subsets are best at w = 1"
    return Direction(
        "the full cross encoder, fused, is best at w = 1 on no subset",
        not best,
        found + (f": {', '.join(best)}" if best else ""),
    )


def _weights(analysis: Analysis) -> Direction:
    found = validate(analysis)
    return Direction(
        "predicted and measured weights correlate at 0.85 or more",
        found.correlation >= 0.85,
        f"{found.correlation:.3f} over {len(found.subsets)} subsets; reliabilities "
        f"{found.reliability_predicted:.3f} (predicted) and {found.reliability_measured:.3f} (measured)",
    )


def _alignment(analysis: Analysis) -> Direction:
    values = [
        value
        for backbone in analysis.settings.backbones
        for value in study_layers(analysis, backbone).alignment()
    ]
    return Direction(
        "agreement with the full model (r) and with relevance (c_s) correlate at 0.9 or more, in the median",
        float(np.median(values)) >= 0.9,
        f"median {np.median(values):.3f}, from {min(values):.3f} to {max(values):.3f} over {len(values)} "
        "pairings "
        "of backbone and corpus",
    )


def _few(analysis: Analysis) -> list[Direction]:
    made = []
    for backbone in analysis.settings.backbones:
        study = study_few_queries(analysis, backbone)
        claim = f"sixteen calibration queries reach 97 % of what all do ({backbone})"
        if 16 not in study.sizes:
            made.append(Direction(claim, False, "fewer than sixteen queries to draw from: not measured"))
            continue
        share = study.share(16)
        made.append(Direction(claim, share >= 97.0, f"{share:.1f} %"))
    return made
