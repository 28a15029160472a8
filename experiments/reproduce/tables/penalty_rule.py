"""Table 7: λ chosen by judgements and by the teacher alone (§B.4)."""

import numpy as np

from experiments.protocols.labelled_penalty import choose_penalty_by_relevance
from experiments.protocols.leave_one_out import corpus_moments, fit_without_each
from experiments.reproduce import paper
from experiments.reproduce.analysis import Analysis
from experiments.reproduce.tables.table import Column, Row, Table, number_columns, text_columns

_RULES = {"judgements": "relevance judgements", "teacher": "teacher alone"}


def table7(analysis: Analysis) -> Table:
    """What each rule picks in each fold, what it deploys, and what that is worth."""
    settings = analysis.settings
    weight = settings.sample_weight
    corpora = analysis.corpora(0)
    rows: list[Row] = []
    for backbone in settings.backbones:
        samples = analysis.samples(backbone)
        moments = {sample.corpus: corpus_moments(sample) for sample in samples}
        choices = {
            "judgements": choose_penalty_by_relevance(samples, weight=weight),
            "teacher": analysis.readouts(backbone).choice,
        }
        for rule, choice in choices.items():
            vectors = fit_without_each(moments, dict.fromkeys(moments, choice.deployed))
            quality = np.mean(
                [
                    sample.fused_ndcg(sample.states @ vector, weight).mean()
                    for sample, vector in zip(samples, vectors, strict=True)
                ]
            )
            chosen = [choice.chosen[corpus] for corpus in corpora]
            rows.append(Row((backbone, _RULES[rule], *chosen, choice.deployed, float(quality))))
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
