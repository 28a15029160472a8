"""Figures 4 and 5: the two propositions."""

from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.reproduce import paper
from experiments.reproduce.analysis import Analysis
from experiments.reproduce.figures.figure import COLOURS, GREY, PaperFigure
from experiments.reproduce.studies.layer_study import study_layers
from experiments.reproduce.studies.weight_validation import validate
from ridgerank.readout.ridge import PENALTIES

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
