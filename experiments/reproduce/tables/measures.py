"""Table 5: the same rankings under four further measures."""

from experiments.reproduce import paper
from experiments.reproduce.analysis import Analysis
from experiments.reproduce.tables.table import Row, Table, number_columns, text_columns
from ridgerank.evaluation.metrics import MEASURES

_SHOWN = {"RR@10": "MRR@10"}


def table5(analysis: Analysis) -> Table:
    """Every method, macro over corpora."""
    settings = analysis.settings
    rows: list[Row] = []
    for family, benchmark in enumerate(settings.families):
        for retriever in settings.retrievers:
            for method in analysis.results(family, retriever):
                names = (benchmark.name, retriever, method.name)
                if not method.by_corpus:
                    rows.append(Row((*names, *[None] * len(MEASURES)), note=method.why))
                    continue
                rows.append(Row((*names, *(method.macro(measure) for measure in MEASURES))))
                where = (
                    paper.FAMILIES[family] if family < 2 else None,
                    paper.model_name(retriever),
                )
                published = paper.look_up("table5", *where, paper.row_key(method.key))
                if published is not None:
                    figures = (published[measure] for measure in MEASURES)
                    rows.append(Row((*where, paper.row_label(method.key), *figures), source=paper.SOURCE))
    return Table(
        "table5",
        "Table 5. Further measures",
        "Macro means over the corpora of a family, in percent. Weights are those of tables 1 and 2: no "
        "measure "
        "but nDCG@5 had a part in choosing them.",
        (
            *text_columns("family", "retriever", "method"),
            *number_columns([_SHOWN.get(name, name) for name in MEASURES]),
        ),
        tuple(rows),
    )
