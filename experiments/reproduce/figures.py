"""The paper's figures: data and a way to draw it, as PNG, JSON and Markdown."""

import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.reproduce import paper
from experiments.reproduce.analysis import Analysis
from experiments.reproduce.studies.depth_and_layer import study_depths, study_layers
from experiments.reproduce.studies.sampling import refined_on_sample, study_few_queries
from experiments.reproduce.studies.weight_rules import validate
from ridgerank.readout import PENALTIES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


BLUE, ORANGE, GREEN, GREY, RED, VIOLET = "#1f5fa8", "#d1731c", "#2f8f4e", "#7d7d7d", "#b3282d", "#6b4fa0"
COLOURS = (BLUE, ORANGE, GREEN, VIOLET, RED, GREY)


@dataclass(frozen=True, slots=True)
class PaperFigure:
    """One figure."""

    name: str
    """`figure2`: the file, and what `--only` calls it."""
    title: str
    caption: str
    data: Mapping[str, Any]
    size: tuple[float, float]
    """Inches."""
    draw: Callable[["Figure"], None]

    def to_json(self) -> str:
        """The figures drawn."""
        whole = {"name": self.name, "title": self.title, "caption": self.caption, "data": self.data}
        return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"

    def to_markdown(self) -> str:
        """The picture with its caption."""
        return f"### {self.title}\n\n![{self.title}]({self.name}.png)\n\n{self.caption}\n"

    def render(self) -> bytes:
        """The picture as PNG; the same data give the same bytes."""
        import matplotlib as mpl
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        with mpl.rc_context({"font.size": 9, "font.family": "DejaVu Sans"}):
            figure = Figure(figsize=self.size, layout="constrained")
            FigureCanvasAgg(figure)
            self.draw(figure)
            file = io.BytesIO()
            figure.savefig(file, format="png", dpi=120, metadata={"Software": None})
        return file.getvalue()


def figure4(analysis: Analysis) -> PaperFigure:
    """Predicted against measured weights, with intervals."""
    settings, validation = analysis.settings, validate(analysis)
    points: list[dict[str, Any]] = [
        {
            "family": settings.families[subset.family].name,
            "corpus": subset.corpus,
            "retriever": subset.retriever,
            "arm": subset.method,
            "predicted": subset.predicted,
            "measured": subset.measured,
            "interval": subset.interval(settings.seed),
        }
        for subset in validation.subsets
    ]

    def draw(figure: "Figure") -> None:
        axes = figure.subplots()
        for number, retriever in enumerate(settings.retrievers):
            for point in (each for each in points if each["retriever"] == retriever):
                low, high = point["interval"]
                axes.plot(
                    [point["predicted"]] * 2, [low, high], color=COLOURS[number], alpha=0.25, linewidth=2
                )
            of_retriever = [each for each in points if each["retriever"] == retriever]
            axes.plot(
                [each["predicted"] for each in of_retriever],
                [each["measured"] for each in of_retriever],
                "o", markersize=4,
                color=COLOURS[number], label=retriever,
            )  # fmt: skip
        axes.plot([0, 1], [0, 1], color=GREY, linewidth=0.8, linestyle="--")
        low = min(float(validation.predicted.min()), *(point["interval"][0] for point in points)) - 0.03
        axes.set(
            xlabel="predicted weight (eq. 4)", ylabel="measured weight", xlim=(low, 1.02), ylim=(low, 1.02)
        )
        axes.legend(fontsize=7, title=f"correlation {validation.correlation:.3f}", title_fontsize=7)

    published = paper.look_up("text", "sec4.3")
    return PaperFigure(
        "figure4",
        "Figure 4. Predicted and measured weights",
        f"{len(points)} subsets; bars are 95 % intervals of the measured weight. Correlation "
        f"{validation.correlation:.3f} ({paper.SOURCE}: {published['correlation']} on "
        f"{published['subsets']} subsets).",
        {"correlation": validation.correlation, "points": points},
        (4.6, 4.2),
        draw,
    )


def figure5(analysis: Analysis) -> PaperFigure:
    """Agreement with the teacher against agreement with relevance."""
    settings = analysis.settings
    studies = {backbone: study_layers(analysis, backbone) for backbone in settings.backbones}
    aligned = {
        f"{backbone}, {corpus}": correlation
        for backbone, study in studies.items()
        for corpus, correlation in zip(study.corpora, study.alignment(), strict=True)
    }

    def draw(figure: "Figure") -> None:
        panels = figure.subplots(1, len(studies), squeeze=False)[0]
        for axes, (backbone, study) in zip(panels, studies.items(), strict=True):
            for number, corpus in enumerate(study.corpora):
                r, c_s = study.agreement[number].ravel(), study.relevance[number].ravel()
                label = f"{corpus} ({study.alignment()[number]:.3f})"
                axes.plot(r, c_s, ".", markersize=4, color=COLOURS[number % len(COLOURS)], label=label)
            axes.set(title=backbone, xlabel="r, with the full model", ylabel="$c_s$, with relevance")
            axes.legend(fontsize=7)

    published = paper.look_up("text", "sec4.3", "alignment")
    values = list(aligned.values())
    return PaperFigure(
        "figure5",
        "Figure 5. Objective and relevance",
        "Every point is a readout of one layer and one λ on a corpus it was not fitted on: its mean "
        "correlation "
        f"with the full model against that with relevance. They correlate from {min(values):.3f} to "
        f"{max(values):.3f}, median {np.median(values):.3f} ({paper.SOURCE}: {published['least']} to "
        f"{published['most']}, {published['median']}).",
        {
            "correlation": aligned,
            "penalties": PENALTIES.tolist(),
            "agreement": {name: study.agreement.tolist() for name, study in studies.items()},
            "relevance": {name: study.relevance.tolist() for name, study in studies.items()},
            "corpora": list(next(iter(studies.values())).corpora),
        },
        (8.4, 3.6),
        draw,
    )


def figure6(analysis: Analysis) -> PaperFigure:
    """Accuracy by layer."""
    settings = analysis.settings
    studies = {backbone: study_layers(analysis, backbone) for backbone in settings.backbones}

    def draw(figure: "Figure") -> None:
        axes = figure.subplots()
        for number, (backbone, study) in enumerate(studies.items()):
            layers = np.arange(1, len(study.quality) + 1)
            axes.plot(layers, study.quality, "o-", color=COLOURS[number], markersize=4, label=backbone)
        axes.set(xlabel="layers run", ylabel="nDCG@5")
        axes.legend(fontsize=7)

    best = {name: int(np.argmax(study.quality)) + 1 for name, study in studies.items()}
    peaks = ", ".join(f"{name} at {layer} of {len(studies[name].quality)}" for name, layer in best.items())
    return PaperFigure(
        "figure6",
        "Figure 6. Accuracy by layer",
        "nDCG@5 on the calibration sample when the state is read after so many layers, λ by the teacher's "
        "rule at "
        f"each, w = {settings.sample_weight}. Highest: {peaks}. The exit layer is fixed beforehand: to "
        "choose it here would read judgements.",
        {
            name: {"nDCG@5": study.quality.tolist(), "penalties": list(study.penalties)}
            for name, study in studies.items()
        },
        (4.8, 3.4),
        draw,
    )


def figure7(analysis: Analysis) -> PaperFigure:
    """Pool depth."""
    settings, study = analysis.settings, study_depths(analysis)
    shown = {
        key: values for key, values in study.quality.items() if key == "retriever" or key.startswith("ours ")
    }
    published = {
        backbone: [
            paper.look_up("table8", str(depth), paper.row_key(f"ours {backbone}")) for depth in study.depths
        ]
        for backbone in settings.backbones
        if paper.model_name(backbone)
    }

    def draw(figure: "Figure") -> None:
        panels = figure.subplots(1, 2 if published else 1, squeeze=False)[0]
        for number, (key, values) in enumerate(shown.items()):
            colour = GREY if key == "retriever" else COLOURS[number - 1]
            label = key.removeprefix("ours ")
            panels[0].plot(study.depths, values, "o-", markersize=3, color=colour, label=label)
        for number, (backbone, figures) in enumerate(published.items()):
            name = paper.model_name(backbone)
            panels[1].plot(study.depths, figures, "o-", markersize=3, color=COLOURS[number], label=name)
        for axes, title in zip(panels, ("this run", paper.SOURCE), strict=False):
            axes.axvline(settings.candidates, color=GREY, linewidth=0.7, linestyle=":")
            axes.set(xlabel="candidates", ylabel="nDCG@5", title=title)
            axes.legend(fontsize=7)

    return PaperFigure(
        "figure7",
        "Figure 7. Pool depth",
        f"nDCG@5 on {settings.families[0].name} with {settings.retrievers[0]}, readouts frozen, by the "
        f"number of candidates; {settings.candidates} are deployed.",
        {"depths": list(study.depths), **{key: list(values) for key, values in shown.items()}},
        (8.4, 3.2) if published else (4.8, 3.2),
        draw,
    )


def figure8(analysis: Analysis) -> PaperFigure:
    """Number of calibration queries."""
    settings = analysis.settings
    studies = {backbone: study_few_queries(analysis, backbone) for backbone in settings.backbones}
    refined = refined_on_sample(analysis)

    def draw(figure: "Figure") -> None:
        axes = figure.subplots()
        for number, (backbone, study) in enumerate(studies.items()):
            mean, deviation = study.quality.mean(axis=1), study.quality.std(axis=1)
            axes.errorbar(
                study.sizes, mean, yerr=deviation, fmt="o-", markersize=4, capsize=2, color=COLOURS[number],
                label=backbone,
            )  # fmt: skip
            axes.axhline(study.everything, color=COLOURS[number], linewidth=0.7, linestyle=":")
        if refined is not None:
            axes.axhline(refined, color=GREY, linewidth=0.9, label="GQR")
        axes.set(xscale="log", xlabel="unlabelled calibration queries", ylabel="nDCG@5")
        sizes = next(iter(studies.values())).sizes
        axes.set_xticks(sizes, [str(size) for size in sizes])
        axes.minorticks_off()
        axes.legend(fontsize=7)

    return PaperFigure(
        "figure8",
        "Figure 8. Calibration queries",
        "nDCG@5 on the calibration sample by the number of unlabelled queries a readout is fitted on, "
        f"mean and standard deviation over {settings.draws} draws; dotted: all queries of the other corpora.",
        {
            **{
                name: {
                    "sizes": list(study.sizes),
                    "mean": study.quality.mean(axis=1).tolist(),
                    "standard deviation": study.quality.std(axis=1).tolist(),
                    "all": study.everything,
                }
                for name, study in studies.items()
            },
            "GQR": refined,
        },
        (4.8, 3.4),
        draw,
    )


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
        "of the two panels do not compare.",
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
