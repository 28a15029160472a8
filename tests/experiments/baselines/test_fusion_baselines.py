import numpy as np

from experiments.baselines.fusion import reciprocal_rank_fusion, score_aggregation
from ridgerank.ragged import Ragged

LISTS = Ragged.of_lengths([4])
FIRST = np.array([3.0, 1.0, 2.0, np.nan])
SECOND = np.array([np.nan, 10.0, 30.0, 20.0])
PRESENT = {"has_first": ~np.isnan(FIRST), "has_second": ~np.isnan(SECOND)}


def test_reciprocal_rank_fusion_by_hand() -> None:
    fused = reciprocal_rank_fusion(FIRST, SECOND, 0.5, LISTS, **PRESENT)
    expected = [0.5 / 61, 0.5 / 63 + 0.5 / 63, 0.5 / 62 + 0.5 / 61, 0.5 / 62]
    np.testing.assert_allclose(fused, expected)


def test_score_aggregation_by_hand() -> None:
    fused = score_aggregation(FIRST, SECOND, 0.25, LISTS, **PRESENT)
    np.testing.assert_allclose(fused, [0.75, 0.0, 0.75 * 0.5 + 0.25, 0.25 * 0.5])
