"""The picture in the README: what happens once a page, once a corpus, and at every request.

python -m benchmarks.overview_figure     writes docs/overview.png
"""

from pathlib import Path

import matplotlib as mpl
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

LANES = [
    (2.0, "once a page", "#e8f0fb"),
    (1.0, "once a corpus", "#eef7ea"),
    (0.0, "every request", "#fdf1e3"),
]
BOXES = {
    "page": (0.75, 2.0, "page image\n+ instruction"),
    "encode": (2.65, 2.0, "first ℓ layers\nof the model"),
    "compress": (4.55, 2.0, "a third of the\npositions, int8"),
    "store": (6.45, 2.0, "page store\n(prefixes)"),
    "teacher": (0.75, 1.0, "full depth,\nwhole page: margin t"),
    "states": (2.65, 1.0, "states h of\nsome queries"),
    "ridge": (4.55, 1.0, "centered ridge\na = (H'H + λI)⁻¹H't"),
    "weight": (6.45, 1.0, "fusion weight w*\nin closed form"),
    "query": (0.75, 0.0, "query"),
    "shallow": (2.65, 0.0, "only the query,\nto layer ℓ"),
    "score": (4.55, 0.0, "s = a'h"),
    "fuse": (6.45, 0.0, "(1−w) z(b) + w z(s)\nwith the retriever's b"),
}
ARROWS = [
    ("page", "encode"),
    ("encode", "compress"),
    ("compress", "store"),
    ("teacher", "states"),
    ("states", "ridge"),
    ("ridge", "weight"),
    ("query", "shallow"),
    ("shallow", "score"),
    ("score", "fuse"),
]


def box(axis: Axes, x: float, y: float, text: str) -> None:
    """A rounded box with text."""
    axis.add_patch(
        FancyBboxPatch(
            (x - 0.72, y - 0.25),
            1.44,
            0.5,
            boxstyle="round,pad=0.02",
            facecolor="white",
            edgecolor="#33415c",
            zorder=2,
        )
    )
    axis.text(x, y, text, ha="center", va="center", fontsize=9.5, color="#1b2538", zorder=3)


def arrow(axis: Axes, start: tuple[float, float], end: tuple[float, float], *, bend: float = 0.0) -> None:
    """An arrow between two points."""
    axis.add_patch(
        FancyArrowPatch(
            start,
            end,
            arrowstyle="-|>",
            mutation_scale=13,
            color="#33415c",
            connectionstyle=f"arc3,rad={bend}",
            zorder=1.5,
        )
    )


def main() -> None:
    """Draw it."""
    mpl.use("Agg")
    figure, axis = plt.subplots(figsize=(10, 3.9), layout="constrained")
    for y, name, colour in LANES:
        axis.add_patch(
            FancyBboxPatch(
                (-0.25, y - 0.38), 7.75, 0.76, boxstyle="round,pad=0.03", facecolor=colour, linewidth=0
            )
        )
        axis.text(-0.4, y, name, ha="right", va="center", fontsize=10.5, weight="bold", color="#33415c")
    for x, y, text in BOXES.values():
        box(axis, x, y, text)
    for start, end in ARROWS:
        arrow(axis, (BOXES[start][0] + 0.76, BOXES[start][1]), (BOXES[end][0] - 0.76, BOXES[end][1]))
    arrow(axis, (5.85, 1.73), (2.75, 0.3), bend=0.0)  # the store serves every request, behind the ridge
    arrow(axis, (4.55, 0.72), (4.55, 0.3))  # the readout scores
    arrow(axis, (6.45, 0.72), (6.45, 0.3))  # the weight fuses
    axis.set_xlim(-1.75, 7.55)
    axis.set_ylim(-0.45, 2.45)
    axis.axis("off")
    figure.savefig(Path("docs/overview.png"), dpi=130)


if __name__ == "__main__":
    main()
