"""Tables 1 and 2: nDCG@5 by corpus, each family a table."""

from experiments.reproduce import paper
from experiments.reproduce.analysis import Analysis, Line
from experiments.reproduce.tables.table import Cell, Column, Row, Table, words


def table1(analysis: Analysis) -> Table:
    """The first family."""
    return _quality(analysis, 0)


def table2(analysis: Analysis) -> Table:
    """The second family."""
    return _quality(analysis, 1)


def _quality(analysis: Analysis, family: int) -> Table:
    name = f"table{family + 1}"
    settings = analysis.settings
    if family >= len(settings.families):
        note = f"{settings.families[0].name} has one family of corpora only: nothing to show here."
        return Table(name, f"Table {family + 1}. nDCG@5, second family", note, words("what"), (), (note,))
    benchmark = settings.families[family]
    corpora = analysis.corpora(family)
    rows: list[Row] = []
    for retriever in settings.retrievers:
        lines = analysis.lines(family, retriever)
        base = next(line for line in lines if line.key == "retriever")
        for line in lines:
            rows.append(_row(retriever, line, base))
            theirs = paper.find(name, paper.model(retriever), paper.key(line.key))
            if theirs is not None:
                rows.append(_paper_row(analysis, name, retriever, line, corpora))
    columns: list[Column] = [*words("retriever", "reranker"), Column("avg"), Column("Δ", "+.1f")]
    for corpus in corpora:
        columns += [Column(corpus), Column(f"Δ {corpus}", "+.1f")]
    fitted = (
        "each corpus by the readout that left it out"
        if family == 0
        else "each corpus by all readouts of the first family, their measures averaged"
    )
    return Table(
        name,
        f"Table {family + 1}. nDCG@5 on {benchmark.name}",
        f"nDCG@5 in percent on the {len(corpora)} corpora of {benchmark.name}, {settings.candidates} "
        "candidates "
        f"a query; Δ is the gain over the retriever alone; {fitted}.",
        tuple(columns),
        tuple(rows),
        (
            "the full cross encoder is a reference: the first backbone over every candidate's image; fused "
            "at "
            "its w*, and alone (w = 1)",
            "weights are read on the next corpus of the family: w* for RidgeRank and the cross encoder, the "
            "best by nDCG@5 for the others; GQR is not fused and stands under the first retriever only",
            *([benchmark.note] if benchmark.note else []),
        ),
    )


def _row(retriever: str, line: Line, base: Line) -> Row:
    corpora = len(base.outcomes)
    if not line.outcomes:
        return Row((retriever, line.name, *[None] * (2 + 2 * corpora)), note=line.why)
    own, theirs = line.macro(), base.macro()
    alone = line.key == "retriever"
    cells: list[Cell] = [retriever, line.name, own, None if alone else own - theirs]
    for outcome, before in zip(line.outcomes, base.outcomes, strict=True):
        cells += [outcome.mean(), None if alone else outcome.mean() - before.mean()]
    return Row(tuple(cells))


def _paper_row(analysis: Analysis, name: str, retriever: str, line: Line, corpora: list[str]) -> Row:
    def gain(column: str | None) -> tuple[Cell, Cell]:
        own = paper.find(name, paper.model(retriever), paper.key(line.key), column)
        before = paper.find(name, paper.model(retriever), "retriever", column)
        return own, None if own is None or line.key == "retriever" else own - before

    cells: list[Cell] = [paper.model(retriever), paper.shown(line.key), *gain("Avg")]
    for corpus in corpora:
        cells += gain(paper.corpus(corpus))
    return Row(tuple(cells), source=paper.SOURCE)
