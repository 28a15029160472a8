import numpy as np
import pytest

from experiments.protocols import GRID, WeightSweep, sweep_weights
from experiments.simulation import World, simulate
from ridgerank.evaluation.metrics import evaluate
from ridgerank.fusion.runs import fuse_runs, join


def test_the_sweep_evaluates_every_weight_and_picks_the_best() -> None:
    sample = simulate(World(), queries=40, seed=0)
    joined, qrels = join(sample.run(sample.retriever), sample.run(sample.reranker)), sample.qrels()
    sweep = sweep_weights(lambda w: evaluate(fuse_runs(joined, w), qrels, ("nDCG@5",)).of("nDCG@5"))
    by_hand = [evaluate(fuse_runs(joined, float(w)), qrels).means()["nDCG@5"] for w in GRID]
    np.testing.assert_allclose(sweep.means, by_hand)
    assert sweep.best == GRID[int(np.argmax(by_hand))]
    assert sweep.quality.shape == (21, 40)


def test_the_empirical_optimum_is_the_mean_of_weights_within_one_point_of_the_best() -> None:
    curve = WeightSweep(
        np.array([0.0, 0.25, 0.5, 0.75, 1.0]), np.array([[60.0], [69.5], [70.0], [69.0], [68.9]])
    )
    assert curve.best == 0.5
    assert curve.optimum == pytest.approx((0.25 + 0.5 + 0.75) / 3)
