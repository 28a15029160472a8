"""The picture of `benchmarks.abstention`: reliability of pages, and probabilities of an answer."""

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt

from experiments.protocols.probability_measures import reliability_bins
from ridgerank.ragged import Bools, Floats


class DrawnOutcome(Protocol):
    """Probabilities of pages and queries, with the truth."""

    @property
    def pages(self) -> Floats:
        """Probability of each page."""

    @property
    def relevant(self) -> Bools:
        """Whether it is relevant."""

    @property
    def queries(self) -> Floats:
        """Probability of each list to hold an answer."""

    @property
    def answered(self) -> Bools:
        """Whether it does."""


def draw_figure(outcomes: Mapping[str, DrawnOutcome], path: Path) -> None:
    """Reliability of pages on the left; beside it, probabilities of an answer where there is one or none."""
    mpl.use("Agg")
    figure, axes = plt.subplots(
        1, 1 + len(outcomes), figsize=(4 + 2.7 * len(outcomes), 3.6), layout="constrained"
    )
    reliability = axes[0]
    reliability.plot([0, 1], [0, 1], color="black", linewidth=1, linestyle=":")
    for name, outcome in outcomes.items():
        parts = reliability_bins(outcome.pages, outcome.relevant)
        claimed, observed = [part.claimed for part in parts], [part.observed for part in parts]
        reliability.plot(claimed, observed, marker="o", markersize=4, label=name)
    reliability.set(xlabel="probability of a page", ylabel="share that is relevant", title="Pages")
    reliability.legend(fontsize=6, loc="lower right")
    edges = np.linspace(0, 1, 21)
    for axis, (name, outcome) in zip(axes[1:], outcomes.items(), strict=True):
        for label, lists in (("answers in the list", outcome.answered), ("taken out", ~outcome.answered)):
            axis.hist(outcome.queries[lists], bins=edges, alpha=0.6, label=label)
        axis.set(xlabel="probability of an answer", title=name)
        axis.title.set_fontsize(9)
        axis.legend(fontsize=7)
    axes[1].set_ylabel("queries")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)
