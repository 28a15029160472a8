"""The label-free weight approaches the one read from relevance as queries grow.

python -m benchmarks.label_free_convergence     writes results/ and the picture in docs/
"""

import argparse
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt

from benchmarks.report import publish
from ridgerank.evaluation.simulation import World, simulate
from ridgerank.fusion.correlations import correlate
from ridgerank.fusion.estimate import closed_form_estimate, label_free_estimate

WORLDS = {
    "weak reranker": World(0.55, 0.4, 0.6),
    "even": World(0.5, 0.5, 0.7),
    "strong": World(0.4, 0.7, 0.8),
}
SIZES = [4, 8, 16, 32, 64, 128, 256, 512, 1024]
DRAWS = 100


def main() -> None:
    """Draw many samples of each size and compare with the weight of a very large labelled sample."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("results/label_free_convergence.json"))
    parser.add_argument("--figure", type=Path, default=Path("docs/label-free-convergence.png"))
    arguments = parser.parse_args()
    result: dict[str, object] = {"queries": SIZES, "draws": DRAWS}
    mpl.use("Agg")
    figure, axes = plt.subplots(1, len(WORLDS), figsize=(11, 3.4), sharey=True, layout="constrained")
    for axis, (name, world) in zip(axes, WORLDS.items(), strict=True):
        large = simulate(world, queries=40_000, seed=0)
        truth = closed_form_estimate(
            correlate(large.retriever, large.reranker, large.grades, large.lists)
        ).weight
        bands, undefined = [], []
        for queries in SIZES:
            estimates = []
            for draw in range(DRAWS):
                sample = simulate(world, queries=queries, seed=1 + draw)
                seen = correlate(sample.retriever, sample.reranker, sample.teacher, sample.lists)
                estimates.append(label_free_estimate(seen))
            weights = [one.weight for one in estimates if one.method == "label-free"]
            undefined.append(sum(one.method == "prior" for one in estimates) / DRAWS)
            bands.append(np.quantile(weights, [0.05, 0.5, 0.95]))
        low, middle, high = np.array(bands).T
        axis.fill_between(SIZES, low, high, alpha=0.25, label="5 to 95 % of samples")
        axis.plot(SIZES, middle, marker="o", markersize=3, label="label-free weight, median")
        axis.axhline(truth, color="black", linestyle="--", linewidth=1, label="w* from relevance")
        axis.set(xscale="log", xlabel="unlabelled queries", title=f"{name}: c_b {world.c_b}, c_s {world.c_s}")
        axis.set_ylim(0, 1)
        result[name] = {
            "weight_from_relevance": round(truth, 4),
            "median": np.round(middle, 4).tolist(),
            "from_5_to_95_percent": np.round(np.column_stack([low, high]), 4).tolist(),
            "share_undefined": undefined,
        }
        print(f"{name:14} w* {truth:.3f}, label-free at {SIZES[-1]} queries {middle[-1]:.3f}")
    axes[0].set_ylabel("fusion weight w")
    axes[-1].legend(fontsize=8, loc="lower right")
    arguments.figure.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(arguments.figure, dpi=130)
    publish(result, arguments.out)


if __name__ == "__main__":
    main()
