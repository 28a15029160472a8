"""The label-free weight beside the one read from relevance, as queries grow.

    python -m benchmarks.label_free_convergence     writes results/ and the picture in docs/

In the uniform inner product the two agree in the limit. In the discounted one, which is deployed, graded
relevance is no linear image of what the scores see once positions are weighed by the retriever's
own order: the label-free weight then settles a little nearer the retriever.
"""

import argparse
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt

from benchmarks.report import publish
from ridgerank.evaluation.simulation import Sample, World, simulate
from ridgerank.fusion.correlations import Correlations, correlate
from ridgerank.fusion.estimate import closed_form_estimate, label_free_estimate
from ridgerank.ragged import Floats

WORLDS = {
    "weak reranker": World(0.55, 0.4, 0.6),
    "even": World(0.5, 0.5, 0.7),
    "strong": World(0.4, 0.7, 0.8),
}
SIZES = [4, 8, 16, 32, 64, 128, 256, 512, 1024]
DRAWS = 100
TRUTH_QUERIES = 40_000


def with_relevance(sample: Sample, *, discounted: bool) -> Correlations:
    """What the closed form is read from."""
    return correlate(sample.retriever, sample.reranker, sample.grades, sample.lists, discounted=discounted)


def with_teacher(sample: Sample, *, discounted: bool) -> Correlations:
    """What the label-free weight is read from."""
    return correlate(sample.retriever, sample.reranker, sample.teacher, sample.lists, discounted=discounted)


def bands(world: World, *, discounted: bool) -> tuple[Floats, list[float]]:
    """5, 50 and 95 % quantiles of the label-free weight at every size, and the share left undefined."""
    quantiles, undefined = [], []
    for queries in SIZES:
        samples = (simulate(world, queries=queries, seed=1 + draw) for draw in range(DRAWS))
        estimates = [label_free_estimate(with_teacher(sample, discounted=discounted)) for sample in samples]
        weights = [estimate.weight for estimate in estimates if estimate.method == "label-free"]
        quantiles.append(np.quantile(weights, [0.05, 0.5, 0.95]))
        undefined.append(1.0 - len(weights) / DRAWS)
    return np.array(quantiles).T, undefined


def main() -> None:
    """Draw many samples of each size and compare with the weight of a very large labelled sample."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("results/label_free_convergence.json"))
    parser.add_argument("--figure", type=Path, default=Path("docs/label-free-convergence.png"))
    arguments = parser.parse_args()
    mpl.use("Agg")
    figure, grid = plt.subplots(2, 3, figsize=(11, 6), sharex=True, sharey=True, layout="constrained")
    result: dict[str, object] = {"queries": SIZES, "draws": DRAWS}
    for row, product in zip(grid, ("uniform", "discounted"), strict=True):
        discounted = product == "discounted"
        for axis, (name, world) in zip(row, WORLDS.items(), strict=True):
            large = simulate(world, queries=TRUTH_QUERIES, seed=0)
            truth = closed_form_estimate(with_relevance(large, discounted=discounted)).weight
            (low, middle, high), undefined = bands(world, discounted=discounted)
            axis.fill_between(SIZES, low, high, alpha=0.25, label="5 to 95 % of samples")
            axis.plot(SIZES, middle, marker="o", markersize=3, label="label-free weight, median")
            axis.axhline(truth, color="black", linestyle="--", linewidth=1, label="w* from relevance")
            axis.set(xscale="log", ylim=(0, 1), title=f"{name}, {product} inner product")
            result[f"{name}, {product}"] = {
                "weight_from_relevance": round(truth, 4),
                "median": np.round(middle, 4).tolist(),
                "from_5_to_95_percent": np.round(np.column_stack([low, high]), 4).tolist(),
                "share_undefined": np.round(undefined, 4).tolist(),
            }
            print(
                f"{name:14} {product:10} w* {truth:.3f}, label-free at {SIZES[-1]} queries {middle[-1]:.3f}"
            )
    for axis in grid[1]:
        axis.set_xlabel("unlabelled queries")
    for axis in grid[:, 0]:
        axis.set_ylabel("fusion weight w")
    grid[0, -1].legend(fontsize=8, loc="lower right")
    arguments.figure.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(arguments.figure, dpi=110)
    publish(result, arguments.out)


if __name__ == "__main__":
    main()
