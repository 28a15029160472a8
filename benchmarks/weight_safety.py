"""How many queries a weight needs before it can be trusted, plain and shrunk.

    python -m benchmarks.weight_safety     writes results/ and the picture in docs/

Many worlds, from a useless reranker to an excellent one, some with noise that retriever and reranker share.
In each, a weight is read from n labelled queries and deployed on a thousand others; counted is how
often it ranks more than half a point of NDCG@5 below the retriever alone, and the mean gain.
"""

import argparse
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt

from benchmarks.report import publish
from experiments.protocols.weight_sweep import GRID, sweep_weights
from ridgerank.evaluation.metrics import evaluate
from ridgerank.evaluation.simulation import Sample, World, simulate
from ridgerank.fusion.correlations import correlate
from ridgerank.fusion.estimate import closed_form_estimate
from ridgerank.fusion.join import fuse_runs, join
from ridgerank.fusion.prior import Prior
from ridgerank.ragged import Floats

SIZES = [2, 4, 8, 16, 32, 64, 128, 256]
WORLDS = 60
DRAWS = 5
TEST_QUERIES = 600
TOLERATED = 0.5
"""Points of NDCG@5: what a thousand test queries cannot tell apart."""


def random_world(generator: np.random.Generator) -> World:
    """A retriever that works, a reranker that may not."""
    return World(
        c_b=float(generator.uniform(0.3, 0.6)),
        c_s=float(generator.uniform(0.0, 0.8)),
        shared=float(generator.choice([0.0, 0.2, 0.4])),
    )


def curve(sample: Sample) -> Floats:
    """NDCG@5 at every weight of the grid."""
    joined = join(sample.run(sample.retriever), sample.run(sample.reranker))
    qrels = sample.qrels()
    return sweep_weights(
        lambda weight: evaluate(fuse_runs(joined, weight), qrels, ("nDCG@5",)).of("nDCG@5")
    ).means


def main() -> None:
    """Deploy plain and shrunk weights in every world."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("results/weight_safety.json"))
    parser.add_argument("--figure", type=Path, default=Path("docs/weight-safety.png"))
    arguments = parser.parse_args()
    generator = np.random.default_rng(0)
    worlds = [random_world(generator) for _ in range(WORLDS)]
    gains = {kind: np.zeros((len(SIZES), WORLDS, DRAWS)) for kind in ("plain", "shrunk")}
    oracle = np.zeros(WORLDS)
    for number, world in enumerate(worlds):
        quality = curve(simulate(world, queries=TEST_QUERIES, seed=10_000 + number))
        oracle[number] = quality.max() - quality[0]
        for row, queries in enumerate(SIZES):
            for draw in range(DRAWS):
                sample = simulate(world, queries=queries, seed=number * 1000 + row * 100 + draw)
                seen = correlate(sample.retriever, sample.reranker, sample.grades, sample.lists)
                for kind, prior in (("plain", None), ("shrunk", Prior())):
                    # A sample in which no query speaks leaves the retriever's order as it is.
                    weight = closed_form_estimate(seen, prior=prior).weight if seen.queries else 0.0
                    gains[kind][row, number, draw] = np.interp(weight, GRID, quality) - quality[0]
    harmed = {kind: (gain < -TOLERATED).mean(axis=(1, 2)) for kind, gain in gains.items()}
    worst = {kind: gain.min(axis=(1, 2)) for kind, gain in gains.items()}
    mean = {kind: gain.mean(axis=(1, 2)) for kind, gain in gains.items()}
    print("queries   below the retriever     worst loss        mean gain      (plain / shrunk)")
    for row, queries in enumerate(SIZES):
        print(
            f"{queries:7} {harmed['plain'][row]:10.1%} {harmed['shrunk'][row]:8.1%} "
            f"{worst['plain'][row]:11.1f} {worst['shrunk'][row]:6.1f} "
            f"{mean['plain'][row]:10.2f} {mean['shrunk'][row]:6.2f}"
        )
    print(f"best possible mean gain: {oracle.mean():.2f}")
    draw_figure(harmed, mean, float(oracle.mean()), arguments.figure)
    publish(
        {
            "queries": SIZES,
            "worlds": WORLDS,
            "draws": DRAWS,
            "tolerated_points": TOLERATED,
            "share_below_retriever": {kind: np.round(row, 4).tolist() for kind, row in harmed.items()},
            "worst_loss_points": {kind: np.round(row, 2).tolist() for kind, row in worst.items()},
            "mean_gain_points": {kind: np.round(row, 2).tolist() for kind, row in mean.items()},
            "best_possible_mean_gain_points": round(float(oracle.mean()), 2),
        },
        arguments.out,
    )


def draw_figure(harmed: dict[str, Floats], mean: dict[str, Floats], best: float, path: Path) -> None:
    """Harm on the left, gain on the right."""
    mpl.use("Agg")
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
    for kind, style in (("plain", "--"), ("shrunk", "-")):
        left.plot(SIZES, 100 * harmed[kind], style, marker="o", markersize=4, label=kind)
        right.plot(SIZES, mean[kind], style, marker="o", markersize=4, label=kind)
    right.axhline(best, color="black", linewidth=1, linestyle=":", label="best weight of each world")
    left.set(
        xscale="log", xlabel="labelled queries", ylabel="% of deployments", title="Ranks below the retriever"
    )
    right.set(
        xscale="log", xlabel="labelled queries", ylabel="NDCG@5 points", title="Mean gain over the retriever"
    )
    for axis in (left, right):
        axis.set_ylim(bottom=0)
        axis.set_xticks(SIZES, [str(size) for size in SIZES])
        axis.minorticks_off()
        axis.legend(fontsize=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)


if __name__ == "__main__":
    main()
