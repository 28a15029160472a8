"""Table 8: every reranker at every pool depth (§B.5)."""

from experiments.baselines.load import NAMES
from experiments.reproduce import paper
from experiments.reproduce.analysis import Analysis
from experiments.reproduce.studies.depth_study import study_depths
from experiments.reproduce.tables.table import Row, Table, numbers, words


def table8(analysis: Analysis) -> Table:
    """nDCG@5 against the number of candidates."""
    settings, study = analysis.settings, study_depths(analysis)
    arms = ["RRF", "Score Aggregation", "text reranker", *(f"ours {name}" for name in settings.backbones)]
    rows: list[Row] = []
    for place, depth in enumerate(study.depths):
        figures = [study.quality[arm][place] if arm in study.quality else None for arm in arms]
        rows.append(Row((str(depth), *figures)))
        theirs = [paper.look_up("table8", str(depth), paper.row_key(arm)) for arm in arms]
        if any(figure is not None for figure in theirs):
            rows.append(Row((str(depth), *theirs), source=paper.SOURCE))
    retriever = study.quality["retriever"][-1]
    skipped = [depth for depth in settings.depths if depth not in study.depths]
    named = NAMES[settings.baselines]["text reranker"]
    shown = [named if arm == "text reranker" else arm.replace("ours ", "RidgeRank ") for arm in arms]
    return Table(
        "table8",
        "Table 8. Pool depth for every method",
        f"nDCG@5 in percent on {settings.families[0].name} with candidates of {settings.retrievers[0]}, by "
        "the "
        "number of candidates re-ranked. RidgeRank's weight is w*, the others' is the best by nDCG@5, each "
        "read "
        "on the next corpus at the same depth.",
        (*words("candidates"), *numbers(shown)),
        tuple(rows),
        (
            f"the retriever alone scores {retriever:.1f} at every depth (paper, A100: 60.9)",
            *(f"{arm} was not run: {why}" for arm, why in study.why.items()),
            *([f"no corpus pools of {skipped[0]} and more: a corpus has fewer pages"] if skipped else []),
        ),
    )
