"""How the miniature's models learned, drawn from the logs of their training.

python -m benchmarks.learning_curves [--logs FOLDER] [--figure results/miniature/training/curve.png]
"""

import argparse
import json
from pathlib import Path

import matplotlib as mpl
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

KINDS = ("binding", "chart", "topic", "negation", "word")
PANELS = ("reading", "matching", "keeping", "retrieval")


def main() -> None:
    """One panel a lesson: what the lesson measures, step by step."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logs", type=Path, default=Path("results/miniature/training"))
    parser.add_argument("--figure", type=Path, default=Path("results/miniature/training/curve.png"))
    arguments = parser.parse_args()
    mpl.use("Agg")
    figure, axes = plt.subplots(1, len(PANELS), figsize=(13, 3.4), sharey=True, layout="constrained")
    for path in sorted(arguments.logs.glob("mini-*.jsonl")):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for axis, lesson in zip(axes, PANELS, strict=True):
            of_lesson = sorted(
                (line for line in lines if line["lesson"] == lesson), key=lambda line: line["step"]
            )
            if of_lesson:
                _draw(axis, lesson, path.stem, of_lesson)
    titles = ("words read", "right order (mini-glm dashed)", "right order, cells hidden", "first page right")
    for axis, title in zip(axes, titles, strict=True):
        axis.set(title=title, xlabel="steps", ylim=(0, 1.02))
        axis.legend(fontsize=7, loc="lower right")
    figure.savefig(arguments.figure, dpi=120)
    print(arguments.figure)


def _draw(axis: Axes, lesson: str, name: str, lines: list[dict[str, float]]) -> None:
    steps = [line["step"] for line in lines]
    match lesson:
        case "reading":
            axis.plot(steps, [line["words"] for line in lines], label=name)
        case "retrieval":
            axis.plot(steps, [line["first"] for line in lines], label=name)
        case _:
            style = "-" if name == "mini-qwen" else "--"
            for number, kind in enumerate(KINDS):
                seen = [(line["step"], line[kind]) for line in lines if kind in line]
                label = f"{name}, {kind}" if name == "mini-qwen" else None
                axis.plot(*zip(*seen, strict=True), style, color=f"C{number}", linewidth=1, label=label)


if __name__ == "__main__":
    main()
