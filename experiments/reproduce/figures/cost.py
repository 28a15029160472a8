"""Figures 2 and 3: accuracy against cost, and where the time goes."""

from typing import TYPE_CHECKING

from experiments.reproduce import paper
from experiments.reproduce.analysis import Analysis
from experiments.reproduce.figures.figure import BLUE, GREEN, GREY, ORANGE, RED, PaperFigure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MARKERS = "osD^vPX*<>"


def figure2(analysis: Analysis) -> PaperFigure:
    """The frontier, first family and first retriever; the paper's beside it."""
    settings = analysis.settings
    retriever = settings.retrievers[0]
    ours = {
        method.name: {"latency_ms": method.latency.total_ms, "nDCG@5": method.macro(), "key": method.key}
        for method in analysis.results(0, retriever)
        if method.latency is not None and method.by_corpus
    }
    published = {
        paper.row_label(key): {"latency_ms": each["latency_ms"], "nDCG@5": each["NDCG@5"], "key": key}
        for key, each in (paper.look_up("table4", paper.model_name(retriever)) or {}).items()
    }

    def draw(figure: "Figure") -> None:
        panels = [("this run", ours), *([(paper.SOURCE, published)] if published else [])]
        drawn = figure.subplots(1, len(panels), squeeze=False)[0]
        for axes, (title, points) in zip(drawn, panels, strict=True):
            ranked = sorted(points.items(), key=lambda each: -float(each[1]["nDCG@5"]))
            for number, (name, point) in enumerate(ranked):
                key = str(point["key"])
                colour = BLUE if key.startswith("ours") else RED if key.startswith("cross") else GREY
                label = f"{_short(name)}: {point['nDCG@5']:.1f}, {point['latency_ms']:,.0f} ms"
                marker = _MARKERS[number % len(_MARKERS)]
                axes.plot(point["latency_ms"], point["nDCG@5"], marker, color=colour, label=label)
            axes.set(xscale="log", xlabel="milliseconds a query", ylabel="nDCG@5", title=title)
            axes.margins(x=0.1, y=0.1)
            axes.legend(fontsize=6.5, loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2, frameon=False)

    return PaperFigure(
        "figure2",
        "Figure 2. Accuracy against cost",
        f"nDCG@5 against mean latency on {settings.families[0].name} with candidates of {retriever}. Times "
        "of the "
        "two panels do not compare.",
        {"this run": ours, paper.SOURCE: published},
        (9.6, 4.4),
        draw,
    )


def figure3(analysis: Analysis) -> PaperFigure:
    """Retrieval, reading, computing."""
    settings = analysis.settings
    retriever = settings.retrievers[0]
    data = {
        method.name: {
            "retrieval": method.latency.retrieval_ms,
            "reading": method.latency.reading_ms,
            "compute": method.latency.compute_ms,
            "nDCG@5": method.macro(),
        }
        for method in analysis.results(0, retriever)
        if method.latency is not None and method.by_corpus and method.key != "cross encoder alone"
    }

    def draw(figure: "Figure") -> None:
        axes: Axes = figure.subplots()
        names = list(data)[::-1]
        left = [0.0] * len(names)
        for part, colour in (("retrieval", GREY), ("reading", GREEN), ("compute", ORANGE)):
            widths = [data[name][part] for name in names]
            axes.barh([_short(name) for name in names], widths, left=left, color=colour, label=part)
            left = [start + width for start, width in zip(left, widths, strict=True)]
        for number, total in enumerate(left):
            quality = data[names[number]]["nDCG@5"]
            axes.annotate(
                f"{total:,.0f} ms, nDCG@5 {quality:.1f}",
                (total, number),
                xytext=(3, -3),
                textcoords="offset points",
                fontsize=7,
            )
        axes.set(xscale="log", xlabel="milliseconds a query, mean", xlim=(0.3, max(left) * 12))
        axes.legend(fontsize=7, loc="lower right")

    return PaperFigure(
        "figure3",
        "Figure 3. Where the time goes",
        f"Mean time of a query on {settings.families[0].name} with candidates of {retriever}: finding "
        "candidates, "
        "reading what a method keeps of them, computing; beside each its nDCG@5. The axis is logarithmic, so "
        "the first part of a bar looks longer than it is; figures are in the JSON.",
        data,
        (7.2, 3.2),
        draw,
    )


def _short(name: str) -> str:
    return name.split(" (stands in")[0].split(" with ")[0]
