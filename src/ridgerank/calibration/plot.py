"""A calibration in one picture: the penalty's path, agreement with the full model, weight and gain."""

import logging
from pathlib import Path

import numpy as np

from ridgerank.atomic import replace_file
from ridgerank.calibration.artifact import Calibration
from ridgerank.calibration.ridge_fit import RidgeFit
from ridgerank.fusion.weight import objective

logger = logging.getLogger(__name__)


def plot_calibration(calibration: Calibration, fit: RidgeFit, path: Path) -> bool:
    """Write the picture, or log that matplotlib is missing; returns whether it was written."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        logger.warning("no picture of the calibration: matplotlib is missing (pip install 'ridgerank[plot]')")
        return False
    facts, weight = calibration.diagnostics, calibration.weight
    figure = Figure(figsize=(12.0, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    path_axes, agreement_axes, weight_axes = figure.subplots(1, 3)

    for errors in facts.errors.values():
        path_axes.plot(facts.penalties, errors, color="0.75", linewidth=1)
    mean = np.mean([list(errors) for errors in facts.errors.values()], axis=0)
    path_axes.plot(facts.penalties, mean, color="C0", marker="o", label="mean over folds")
    path_axes.axvline(calibration.readout.penalty, color="C3", linestyle="--", label="deployed")
    path_axes.set(xscale="log", xlabel="penalty λ", ylabel="held-out error, share of the targets'")
    path_axes.set_title("The penalty")
    path_axes.legend()

    agreement_axes.hist(fit.agreement, bins=np.linspace(-1, 1, 21), color="C0")
    agreement_axes.axvline(
        facts.agreement, color="C3", linestyle="--", label=f"mean r = {facts.agreement:.2f}"
    )
    agreement_axes.set(xlabel="correlation with the teacher, held-out lists", ylabel="lists")
    agreement_axes.set_title("Agreement with the teacher")
    agreement_axes.legend()

    grid = np.linspace(0.0, 1.0, 101)
    if np.isfinite(weight.c_b):
        correlations = (np.asarray(value) for value in (weight.c_b, weight.c_s, weight.rho))
        weight_axes.plot(grid, objective(grid, *correlations), color="C0")
        weight_axes.axhline(weight.c_b, color="0.6", linewidth=1, label="retriever alone")
    else:
        weight_axes.text(0.5, 0.5, "no estimate:\nthe retriever alone", ha="center", va="center")
    weight_axes.axvspan(*weight.weight_interval, color="C3", alpha=0.12, label="95 % interval")
    weight_axes.axvline(weight.weight, color="C3", linestyle="--", label=f"w = {weight.weight:.2f}")
    weight_axes.set(xlabel="weight of the readout", ylabel="correlation with relevance", xlim=(0, 1))
    weight_axes.set_title(f"The weight ({weight.method})")
    weight_axes.legend()

    with replace_file(path) as scratch:
        figure.savefig(scratch, format="png", dpi=110)
    return True
