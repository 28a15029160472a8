"""Storage settings in one picture: agreement over bytes, with the current and the recommended setting."""

from pathlib import Path

from ridgerank.atomic import replace_file
from ridgerank.calibration.storage_choice import find_frontier
from ridgerank.calibration.storage_tuning import TuningReport
from ridgerank.extras import require_packages


def require_matplotlib() -> None:
    """Refuse at once where the picture could not be drawn in the end."""
    require_packages("matplotlib")


def plot_tuning(report: TuningReport, path: Path) -> None:
    """Write the picture."""
    require_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.0, 5.0), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for row in report.rows:
        low, high = row.agreement_interval
        kilobytes = row.bytes_per_page / 1e3
        axes.plot([kilobytes, kilobytes], [low, high], color="0.85", linewidth=2, zorder=1)
        axes.plot(kilobytes, row.agreement, "o", color="C0", markersize=5)
    frontier = find_frontier(report.rows)
    points = [(row.bytes_per_page / 1e3, row.agreement) for row in frontier]
    axes.plot(*zip(*points, strict=True), color="C0", label="frontier:")
    for number, (row, point) in enumerate(zip(frontier, points, strict=True), start=1):
        axes.annotate(str(number), point, xytext=(-3, 7), textcoords="offset points", fontsize=8)
        axes.plot([], [], " ", label=f"{number}  {row.setting}")
    marks = ((report.rows[0], "s", "C1", "current"), (report.choice.recommended, "*", "C3", "recommended"))
    for row, marker, color, label in marks:
        axes.plot(
            row.bytes_per_page / 1e3,
            row.agreement,
            marker,
            color=color,
            markersize=12,
            fillstyle="none",
            label=label,
        )
    axes.set(xscale="log", xlabel="kB per page", ylabel="agreement r with the full model, held out")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter("{x:g}")
    figure.legend(loc="outside right upper", fontsize=8)
    with replace_file(path) as scratch:
        figure.savefig(scratch, format="png", dpi=110)
