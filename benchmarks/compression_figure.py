"""Quality over bytes of a stored page, drawn from what `benchmarks.compression` measured.

python -m benchmarks.compression_figure [--results results/compression.json] [--figure docs/compression.png]
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

MARKERS = {"stride": "o", "value-norm": "s", "value-distance": "D", "ink": "v", "spread": "^"}


def main() -> None:
    """One panel for each backbone: agreement with the full model over bytes, the paper's setting marked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=Path("results/compression.json"))
    parser.add_argument("--figure", type=Path, default=Path("docs/compression.png"))
    arguments = parser.parse_args()
    rows = json.loads(arguments.results.read_text())["rows"]
    backbones = list(dict.fromkeys(row["backbone"] for row in rows))
    mpl.use("Agg")
    figure, panels = plt.subplots(
        1, len(backbones), figsize=(3.6 * len(backbones), 3.6), layout="constrained", squeeze=False
    )
    for axes, backbone in zip(panels[0], backbones, strict=True):
        draw(axes, [row for row in rows if row["backbone"] == backbone])
        axes.set_title(backbone)
    panels[0][0].set_ylabel("held-out agreement r with the full model")
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), fontsize=8)
    figure.savefig(arguments.figure, dpi=120)
    print(arguments.figure)


def draw(axes: Axes, rows: Sequence[dict[str, Any]]) -> None:
    """Settings of one backbone by rule, those that nothing smaller beats joined by a line."""
    paper = rows[0]
    for rule, marker in MARKERS.items():
        chosen = [row for row in rows if row["keep"].split()[0] == rule]
        sizes = [row["bytes_per_page"] / paper["bytes_per_page"] for row in chosen]
        axes.scatter(sizes, [row["agreement"] for row in chosen], marker=marker, s=22, label=rule)
    frontier = find_frontier(rows)
    axes.plot(
        [row["bytes_per_page"] / paper["bytes_per_page"] for row in frontier],
        [row["agreement"] for row in frontier],
        color="0.6",
        linewidth=1,
        zorder=0,
    )
    axes.scatter([1.0], [paper["agreement"]], s=140, facecolors="none", edgecolors="C3", label="the paper's")
    axes.axhline(paper["agreement"], color="C3", linewidth=0.6, linestyle=":")
    axes.set(xlabel="bytes of a page, the paper's = 1")


def find_frontier(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The settings that agree more than every smaller one, by size."""
    frontier: list[dict[str, Any]] = []
    for row in sorted(rows, key=lambda row: (row["bytes_per_page"], -row["agreement"])):
        if not frontier or row["agreement"] > frontier[-1]["agreement"]:
            frontier.append(row)
    return frontier


if __name__ == "__main__":
    main()
