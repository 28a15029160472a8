"""All claims, in the order of the paper."""

from experiments.reproduce.analysis import Analysis
from experiments.reproduce.claims.claim import Claim
from experiments.reproduce.claims.cost_claims import check_cost
from experiments.reproduce.claims.fit_claims import check_components, check_fit, check_penalty
from experiments.reproduce.claims.pool_claims import check_pools
from experiments.reproduce.claims.quality_claims import check_quality
from experiments.reproduce.claims.weight_claims import check_label_free, check_theory


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
