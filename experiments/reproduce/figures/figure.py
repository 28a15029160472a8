"""A figure as data and a way to draw it; files as PNG, SVG, JSON, Markdown and LaTeX."""

import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from experiments.reproduce.tables.table import escape_latex

if TYPE_CHECKING:
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

    def to_latex(self) -> str:
        """A float, ready to be included."""
        lines = [
            r"\begin{figure}[t]",
            r"\centering",
            rf"\includegraphics[width=\linewidth]{{{self.name}}}",
            rf"\caption{{{escape_latex(self.caption)}}}",
            rf"\label{{fig:ridgerank-{self.name}}}",
            r"\end{figure}",
        ]
        return "\n".join(lines) + "\n"

    def render(self, kind: str) -> bytes:
        """The picture as `png` or `svg`; the same data give the same bytes."""
        import matplotlib as mpl
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        settings = {"svg.hashsalt": "ridgerank", "svg.fonttype": "none", "font.size": 9}
        with mpl.rc_context({**settings, "font.family": "DejaVu Sans"}):
            figure = Figure(figsize=self.size, layout="constrained")
            FigureCanvasAgg(figure)
            self.draw(figure)
            file = io.BytesIO()
            metadata = {"Date": None} if kind == "svg" else {"Software": None}
            figure.savefig(file, format=kind, dpi=120, metadata=metadata)
        return file.getvalue()
