"""The tables and figures by name, and which stages each needs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from experiments.reproduce.analysis import Analysis
from experiments.reproduce.figures.cost import figure2, figure3
from experiments.reproduce.figures.figure import PaperFigure
from experiments.reproduce.figures.sensitivity import figure6, figure7, figure8
from experiments.reproduce.figures.theory import figure4, figure5
from experiments.reproduce.prepare import Need
from experiments.reproduce.tables.ablation import table3
from experiments.reproduce.tables.depth import table8
from experiments.reproduce.tables.efficiency import table4
from experiments.reproduce.tables.fused_full_depth import table6
from experiments.reproduce.tables.label_free import table9
from experiments.reproduce.tables.measures import table5
from experiments.reproduce.tables.paired_tests import significance, weights
from experiments.reproduce.tables.penalty_rule import table7
from experiments.reproduce.tables.quality import table1, table2
from experiments.reproduce.tables.table import Table
from ridgerank.errors import DatasetError


@dataclass(frozen=True, slots=True)
class CatalogueEntry:
    """One table or figure."""

    compute: Callable[[Analysis], Table | PaperFigure]
    needs: frozenset[Need]


def _entry(compute: Callable[[Analysis], Table | PaperFigure], *needs: Need) -> CatalogueEntry:
    return CatalogueEntry(compute, frozenset(needs))


CATALOGUE: Mapping[str, CatalogueEntry] = {
    "table1": _entry(table1, Need.FIRST, Need.BASELINES),
    "table2": _entry(table2, Need.ALL, Need.BASELINES),
    "table3": _entry(table3, Need.FIRST),
    "table4": _entry(table4, Need.FIRST, Need.BASELINES),
    "table5": _entry(table5, Need.ALL, Need.BASELINES),
    "table6": _entry(table6, Need.ALL),
    "table7": _entry(table7, Need.FIRST),
    "table8": _entry(table8, Need.FIRST, Need.DEEP, Need.BASELINES),
    "table9": _entry(table9, Need.ALL, Need.BASELINES),
    "figure2": _entry(figure2, Need.FIRST, Need.BASELINES),
    "figure3": _entry(figure3, Need.FIRST, Need.BASELINES),
    "figure4": _entry(figure4, Need.ALL),
    "figure5": _entry(figure5, Need.FIRST, Need.LAYERS),
    "figure6": _entry(figure6, Need.FIRST, Need.LAYERS),
    "figure7": _entry(figure7, Need.FIRST, Need.DEEP, Need.BASELINES),
    "figure8": _entry(figure8, Need.FIRST, Need.BASELINES),
    "weights": _entry(weights, Need.ALL),
    "significance": _entry(significance, Need.ALL, Need.BASELINES),
}
"""The paper's tables 1 to 9 and figures 2 to 8 (figure 1 shows the method), and two tables of ours."""


def select_entries(only: Sequence[str]) -> dict[str, CatalogueEntry]:
    """The entries with these names, or all where no name is given."""
    unknown = [name for name in only if name not in CATALOGUE]
    if unknown:
        raise DatasetError(f"nothing is called {unknown[0]!r}; there are: {', '.join(CATALOGUE)}")
    return {name: entry for name, entry in CATALOGUE.items() if not only or name in only}
