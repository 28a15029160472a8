"""Table 7: λ chosen by judgements and by the teacher alone (§B.4)."""

from experiments.reproduce import paper
from experiments.reproduce.analysis import Analysis
from experiments.reproduce.studies.penalty_rules import compare_penalty_rules
from experiments.reproduce.tables.table import Column, Row, Table, number_columns, text_columns

_RULES = {"judgements": "relevance judgements", "teacher": "teacher alone"}


def table7(analysis: Analysis) -> Table:
    """What each rule picks in each fold, what it deploys, and what that is worth."""
    settings = analysis.settings
    weight = settings.sample_weight
    corpora = analysis.corpora(0)
    rows: list[Row] = []
    for backbone in settings.backbones:
        for rule, outcome in compare_penalty_rules(analysis, backbone).items():
            choice = outcome.choice
            chosen = [choice.chosen[corpus] for corpus in corpora]
            rows.append(Row((backbone, _RULES[rule], *chosen, choice.deployed, outcome.quality)))
            published = paper.look_up("table7", paper.model_name(backbone), rule)
            if published is not None:
                cells = [published.get(paper.corpus_name(corpus)) for corpus in corpora]
                names = (paper.model_name(backbone), _RULES[rule])
                figures = (*cells, published["deployed"], published["NDCG@5"])
                rows.append(Row((*names, *figures), source=paper.SOURCE))
    return Table(
        "table7",
        "Table 7. The penalty without labels",
        "λ picked in the fold that leaves a corpus out (two corpora fit, the next validates), the modal λ "
        "that "
        f"is deployed, and nDCG@5 on the calibration sample at that λ, w = {weight}.",
        (
            *text_columns("backbone", "rule"),
            *number_columns(corpora, "g"),
            Column("deployed", "g"),
            Column("nDCG@5"),
        ),
        tuple(rows),
        ("reported results use the teacher's rule",),
    )
