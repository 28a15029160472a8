"""Table 4: accuracy against cost, first family."""

from experiments.protocols.recovery import recovery
from experiments.reproduce import paper
from experiments.reproduce.analysis import Analysis
from experiments.reproduce.tables.table import Column, Row, Table, text_columns


def table4(analysis: Analysis) -> Table:
    """Recovery of the cross encoder's gain, mean latency, speedup over the cross encoder."""
    settings = analysis.settings
    rows: list[Row] = []
    for retriever in settings.retrievers:
        methods = analysis.results(0, retriever)
        base = analysis.result(0, retriever, "retriever").macro()
        reference = analysis.result(0, retriever, "cross encoder")
        assert reference.latency is not None
        for method in methods:
            if not method.by_corpus or method.latency is None:
                rows.append(Row((retriever, method.name, None, None, None, None), note=method.why))
                continue
            share = None if method.key == "retriever" else recovery(base, method.macro(), reference.macro())
            cost = method.latency.total_ms
            rows.append(
                Row((retriever, method.name, method.macro(), share, cost, reference.latency.total_ms / cost))
            )
            published = paper.look_up("table4", paper.model_name(retriever), paper.row_key(method.key))
            if published is not None:
                figures = (
                    published["NDCG@5"],
                    published["recovery"],
                    published["latency_ms"],
                    published["speedup"],
                )
                names = (paper.model_name(retriever), paper.row_label(method.key))
                rows.append(Row((*names, *figures), source=paper.SOURCE))
    return Table(
        "table4",
        f"Table 4. Accuracy and cost on {settings.families[0].name}",
        "Recovery is the share of the full cross encoder's gain over the retriever that a method keeps; "
        "latency "
        "is a mean over queries, retrieval included; speedup is against the full cross encoder.",
        (
            *text_columns("retriever", "method"),
            Column("nDCG@5"),
            Column("recovery, %"),
            Column("latency, ms", ",.1f"),
            Column("speedup", ",.1f"),
        ),
        tuple(rows),
        (
            f"full passes over all images were timed on every {settings.full_pass_every}th query, everything "
            "else on every query"
            if settings.full_pass_every > 1
            else "everything was timed on every query",
            "times hold for the machine this ran on, and for what else ran there: the first backbone and "
            "full passes took turns, other rows were measured at other times",
            "an arm that stands in for a published one has its own cost, not that one's",
        ),
    )
