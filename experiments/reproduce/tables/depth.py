"""Table 8: every reranker at every pool depth (§B.5)."""

from experiments.baselines.load import NAMES
from experiments.reproduce import paper
from experiments.reproduce.analysis import Analysis
from experiments.reproduce.studies.depth_study import study_depths
from experiments.reproduce.tables.table import Row, Table, number_columns, text_columns


def table8(analysis: Analysis) -> Table:
    """nDCG@5 against the number of candidates."""
    settings, study = analysis.settings, study_depths(analysis)
    methods = ["RRF", "Score Aggregation", "text reranker", *(f"ours {name}" for name in settings.backbones)]
    rows: list[Row] = []
    for row, depth in enumerate(study.depths):
        figures = [study.quality[method][row] if method in study.quality else None for method in methods]
        rows.append(Row((str(depth), *figures)))
        published = [paper.look_up("table8", str(depth), paper.row_key(method)) for method in methods]
        if any(figure is not None for figure in published):
            rows.append(Row((str(depth), *published), source=paper.SOURCE))
    retriever = study.quality["retriever"][-1]
    skipped = [depth for depth in settings.depths if depth not in study.depths]
    reranker = NAMES[settings.baselines]["text reranker"]
    headings = [
        reranker if method == "text reranker" else method.replace("ours ", "RidgeRank ") for method in methods
    ]
    return Table(
        "table8",
        "Table 8. Pool depth for every method",
        f"nDCG@5 in percent on {settings.families[0].name} with candidates of {settings.retrievers[0]}, by "
        "the "
        "number of candidates re-ranked. RidgeRank's weight is w*, the others' is the best by nDCG@5, each "
        "read "
        "on the next corpus at the same depth.",
        (*text_columns("candidates"), *number_columns(headings)),
        tuple(rows),
        (
            f"the retriever alone scores {retriever:.1f} at every depth (paper, A100: 60.9)",
            *(f"{method} was not run: {why}" for method, why in study.why.items()),
            *([f"no corpus pools of {skipped[0]} and more: a corpus has fewer pages"] if skipped else []),
        ),
    )
