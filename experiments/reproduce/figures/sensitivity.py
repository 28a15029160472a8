"""Figures 6 to 8: the layer, the pool's depth, the number of calibration queries."""

from typing import TYPE_CHECKING

import numpy as np

from experiments.reproduce import paper
from experiments.reproduce.analysis import Analysis
from experiments.reproduce.figures.figure import COLOURS, GREY, PaperFigure
from experiments.reproduce.studies.depth_study import study_depths
from experiments.reproduce.studies.few_queries import refined_on_sample, study_few_queries
from experiments.reproduce.studies.layer_study import study_layers

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
        "choose it "
        "here would read judgements.",
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
        "number of "
        f"candidates; {settings.candidates} are deployed.",
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
        "mean and "
        f"standard deviation over {settings.draws} draws; dotted: all queries of the other corpora.",
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
