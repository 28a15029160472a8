"""Table 9: the weight by looking, by eq. 4, and without judgements (§B.6)."""

import numpy as np

from experiments.reproduce import paper
from experiments.reproduce.analysis import Analysis
from experiments.reproduce.studies.weight_rules import FEW, compare_weight_rules
from experiments.reproduce.tables.table import Row, Table, number_columns, text_columns

_KEYS = ("sweep", "closed form", "label free", "label free 16", "label free 16 sd")


def table9(analysis: Analysis) -> Table:
    """RidgeRank's nDCG@5 under each way."""
    settings = analysis.settings
    rows: list[Row] = []
    every = []
    for family, benchmark in enumerate(settings.families):
        for retriever in settings.retrievers:
            for backbone in settings.backbones:
                quality = compare_weight_rules(analysis, family, retriever, backbone)
                figures = (
                    quality.sweep,
                    quality.closed_form,
                    quality.label_free,
                    float(np.mean(quality.few)),
                    float(np.std(quality.few)),
                )
                every.append(figures)
                rows.append(Row((benchmark.name, retriever, backbone, *figures)))
                names = (
                    paper.FAMILIES[family] if family < 2 else None,
                    paper.model_name(retriever),
                    paper.model_name(backbone),
                )
                published = paper.look_up("table9", *names)
                if published is not None:
                    rows.append(Row((*names, *(published[key] for key in _KEYS)), source=paper.SOURCE))
    rows.append(Row(("average", None, None, *np.mean([row[:4] for row in every], axis=0).tolist(), None)))
    whole = paper.look_up("table9_average")
    rows.append(Row(("average", None, None, *(whole[key] for key in _KEYS[:4]), None), source=paper.SOURCE))
    return Table(
        "table9",
        "Table 9. The weight without judgements",
        "nDCG@5 in percent of RidgeRank at the weight that is best on the next corpus, at w* read there with "
        "its judgements, and at the weight of the one-factor model from the corpus' own unlabelled "
        "queries: all "
        f"of them, or {FEW} drawn at random ({settings.draws} draws). The third score is the full-depth "
        "margin "
        f"of {settings.backbones[0]}.",
        (
            *text_columns("family", "retriever", "backbone"),
            *number_columns(
                ["sweep", "w*", "label free", f"label free, {FEW} queries", "standard deviation"]
            ),
        ),
        tuple(rows),
        ("an estimate above 1 is taken for 1, as far as the one-factor model reaches",),
    )
