"""All claims, in the order of the paper."""

from experiments.reproduce.analysis import Analysis
from experiments.reproduce.claims.quality_claims import Claim, check_cost, check_pools, check_quality
from experiments.reproduce.claims.weight_claims import (
    check_components,
    check_fit,
    check_label_free,
    check_penalty,
    check_theory,
)


def check_claims(analysis: Analysis) -> list[Claim]:
    """Abstract and §4.1 to §B.6."""
    return [
        *check_quality(analysis),
        *check_cost(analysis),
        *check_theory(analysis),
        *check_components(analysis),
        *check_fit(analysis),
        *check_penalty(analysis),
        *check_pools(analysis),
        *check_label_free(analysis),
    ]
