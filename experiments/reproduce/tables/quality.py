"""Tables 1, 2, 5 and 8: ranking quality by corpus, by measure and by pool depth."""

from experiments.baselines.load import NAMES
from experiments.reproduce import paper
from experiments.reproduce.analysis import Analysis
from experiments.reproduce.method_results import MethodResult
from experiments.reproduce.studies.depth_and_layer import study_depths
from experiments.reproduce.tables.table import Cell, Column, Row, Table, number_columns, text_columns
from ridgerank.evaluation.metrics import MEASURES


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
        return Table(
            name, f"Table {family + 1}. nDCG@5, second family", note, text_columns("what"), (), (note,)
        )
    benchmark = settings.families[family]
    corpora = analysis.corpora(family)
    rows: list[Row] = []
    for retriever in settings.retrievers:
        methods = analysis.results(family, retriever)
        base = next(method for method in methods if method.key == "retriever")
        for method in methods:
            rows.append(_row(retriever, method, base))
            published = paper.look_up(name, paper.model_name(retriever), paper.row_key(method.key))
            if published is not None:
                rows.append(_paper_row(analysis, name, retriever, method, corpora))
    columns: list[Column] = [*text_columns("retriever", "reranker"), Column("avg"), Column("Δ", "+.1f")]
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
        f"candidates a query; Δ is the gain over the retriever alone; {fitted}.",
        tuple(columns),
        tuple(rows),
        (
            "the full cross encoder is a reference: the first backbone over every candidate's image; fused "
            "at its w*, and alone (w = 1)",
            "weights are read on the next corpus of the family: w* for RidgeRank and the cross encoder, the "
            "best by nDCG@5 for the others; GQR is not fused and stands under the first retriever only",
            *(
                method.remark
                for retriever in settings.retrievers
                for method in analysis.results(family, retriever)
                if method.remark
            ),
            *([benchmark.note] if benchmark.note else []),
        ),
    )


def _row(retriever: str, method: MethodResult, base: MethodResult) -> Row:
    corpora = len(base.by_corpus)
    if not method.by_corpus:
        return Row((retriever, method.name, *[None] * (2 + 2 * corpora)), note=method.why)
    macro = method.macro()
    alone = method.key == "retriever"
    cells: list[Cell] = [retriever, method.name, macro, None if alone else macro - base.macro()]
    for result, before in zip(method.by_corpus, base.by_corpus, strict=True):
        cells += [result.mean(), None if alone else result.mean() - before.mean()]
    return Row(tuple(cells))


def _paper_row(
    analysis: Analysis, name: str, retriever: str, method: MethodResult, corpora: list[str]
) -> Row:
    def gain(column: str | None) -> tuple[Cell, Cell]:
        value = paper.look_up(name, paper.model_name(retriever), paper.row_key(method.key), column)
        before = paper.look_up(name, paper.model_name(retriever), "retriever", column)
        return value, None if value is None or method.key == "retriever" else value - before

    cells: list[Cell] = [paper.model_name(retriever), paper.row_label(method.key), *gain("Avg")]
    for corpus in corpora:
        cells += gain(paper.corpus_name(corpus))
    return Row(tuple(cells), source=paper.SOURCE)


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
        "measure but nDCG@5 had a part in choosing them.",
        (
            *text_columns("family", "retriever", "method"),
            *number_columns([_SHOWN.get(name, name) for name in MEASURES]),
        ),
        tuple(rows),
    )


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
        "read on the next corpus at the same depth.",
        (*text_columns("candidates"), *number_columns(headings)),
        tuple(rows),
        (
            f"the retriever alone scores {retriever:.1f} at every depth (paper, A100: 60.9)",
            *(f"{method} was not run: {why}" for method, why in study.why.items()),
            *([f"no corpus pools of {skipped[0]} and more: a corpus has fewer pages"] if skipped else []),
        ),
    )
