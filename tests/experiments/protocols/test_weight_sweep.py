import numpy as np
import pytest

from experiments.protocols.weight_sweep import (
    GRID,
    Sweep,
    fuse_at_picked_weight,
    fuse_by_aggregation,
    fuse_by_rank,
    sweep,
)
from ridgerank.evaluation.metrics import evaluate
from ridgerank.evaluation.simulation import World, simulate
from ridgerank.fusion.join import fuse_runs, join
from ridgerank.runs.run import Run


def test_the_sweep_evaluates_every_weight_and_picks_the_best() -> None:
    sample = simulate(World(), queries=40, seed=0)
    joined, qrels = join(sample.run(sample.retriever), sample.run(sample.reranker)), sample.qrels()
    swept = sweep(joined, qrels)
    by_hand = [evaluate(fuse_runs(joined, float(w)), qrels).means()["nDCG@5"] for w in GRID]
    np.testing.assert_allclose(swept.means, by_hand)
    assert swept.best == GRID[int(np.argmax(by_hand))]
    assert swept.quality.shape == (21, 40)


def test_the_empirical_optimum_is_the_mean_of_weights_within_one_point_of_the_best() -> None:
    curve = Sweep(np.array([0.0, 0.25, 0.5, 0.75, 1.0]), np.array([[60.0], [69.5], [70.0], [69.0], [68.9]]))
    assert curve.best == 0.5
    assert curve.optimum == pytest.approx((0.25 + 0.5 + 0.75) / 3)


def test_a_flat_curve_stays_with_the_retriever() -> None:
    assert Sweep(np.array([0.0, 1.0]), np.array([[5.0], [5.0]])).best == 0.0


@pytest.mark.parametrize("fuser", [fuse_by_rank, fuse_by_aggregation])
def test_baselines_unite_pages_and_keep_the_single_runs_at_the_end_points(fuser: object) -> None:
    first = Run.of_dict({"q": {"a": 3.0, "b": 2.0, "c": 1.0}})
    second = Run.of_dict({"q": {"c": 9.0, "d": 5.0, "a": 4.0}})
    joined = join(first, second)
    assert callable(fuser)
    assert fuser(joined, 0.0).pages(0)[:2] == ["a", "b"]
    assert fuser(joined, 1.0).pages(0)[:2] == ["c", "d"]
    assert sorted(fuser(joined, 0.5).pages(0)) == ["a", "b", "c", "d"]


def test_a_baselines_weight_comes_from_another_corpus() -> None:
    here, there = (simulate(World(c_s=0.9), queries=40, seed=seed) for seed in (1, 2))
    joined, elsewhere = (join(s.run(s.retriever), s.run(s.reranker)) for s in (here, there))
    run, weight = fuse_at_picked_weight(
        fuse_by_aggregation, joined, elsewhere=elsewhere, elsewhere_qrels=there.qrels()
    )
    assert weight == sweep(elsewhere, there.qrels(), fuser=fuse_by_aggregation).best
    assert run.to_dict() == fuse_by_aggregation(joined, weight).to_dict()
