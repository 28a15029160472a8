"""Table 7: λ chosen by judgements and by the teacher alone (§B.4)."""

import numpy as np

from experiments.protocols.labelled_penalty import LabelledCorpus, choose_penalty_by_relevance
from experiments.protocols.scored_corpus import Scored
from experiments.reproduce import paper
from experiments.reproduce.analysis import Analysis
from experiments.reproduce.protocol.fold_readouts import leave_one_out, moments_of
from experiments.reproduce.tables.table import Column, Row, Table, numbers, words
from ridgerank.fusion.join import join
from ridgerank.fusion.standardize import fuse
from ridgerank.runs.run import Run

_RULES = {"judgements": "relevance judgements", "teacher": "teacher alone"}


def table7(analysis: Analysis) -> Table:
    """What each rule picks in each fold, what it deploys, and what that is worth."""
    settings = analysis.settings
    weight = settings.sample_weight
    corpora = analysis.corpora(0)
    rows: list[Row] = []
    for backbone in settings.backbones:
        samples = analysis.samples(backbone)
        moments = {sample.corpus: moments_of(sample) for sample in samples}
        labelled = {sample.corpus: _labelled(sample) for sample in samples}
        choices = {
            "judgements": choose_penalty_by_relevance(labelled, weight=weight),
            "teacher": analysis.readouts(backbone).choice,
        }
        for rule, choice in choices.items():
            vectors = leave_one_out(moments, choice.deployed)
            quality = np.mean(
                [
                    sample.ndcg(fuse(sample.retriever, sample.states @ vector, weight, sample.lists)).mean()
                    for sample, vector in zip(samples, vectors, strict=True)
                ]
            )
            chosen = [choice.chosen[corpus] for corpus in corpora]
            rows.append(Row((backbone, _RULES[rule], *chosen, choice.deployed, float(quality))))
            theirs = paper.find("table7", paper.model(backbone), rule)
            if theirs is not None:
                cells = [theirs.get(paper.corpus(corpus)) for corpus in corpora]
                names = (paper.model(backbone), _RULES[rule])
                figures = (*cells, theirs["deployed"], theirs["NDCG@5"])
                rows.append(Row((*names, *figures), source=paper.SOURCE))
    return Table(
        "table7",
        "Table 7. The penalty without labels",
        "λ picked in the fold that leaves a corpus out (two corpora fit, the next validates), the modal λ "
        "that "
        f"is deployed, and nDCG@5 on the calibration sample at that λ, w = {weight}.",
        (*words("backbone", "rule"), *numbers(corpora, "g"), Column("deployed", "g"), Column("nDCG@5")),
        tuple(rows),
        ("reported results use the teacher's rule",),
    )


def _labelled(sample: Scored) -> LabelledCorpus:
    """The sample as the labelled rule takes it: runs joined, states in their order."""
    asked = [sample.queries[number] for number in sample.lists.list_numbers().tolist()]
    joined = join(Run.of_columns(asked, sample.pages, sample.retriever.tolist()))
    place = {pair: number for number, pair in enumerate(zip(asked, sample.pages, strict=True))}
    order = [
        place[joined.queries[number], joined.vocabulary[code]]
        for number, code in zip(joined.lists.list_numbers().tolist(), joined.codes.tolist(), strict=True)
    ]
    return LabelledCorpus(joined, sample.states[order], sample.qrels, moments_of(sample))
