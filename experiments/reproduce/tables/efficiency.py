"""Table 4: accuracy against cost, first family."""

from experiments.protocols.leave_one_out import recovery
from experiments.reproduce import paper
from experiments.reproduce.analysis import Analysis
from experiments.reproduce.tables.table import Column, Row, Table, words


def table4(analysis: Analysis) -> Table:
    """Recovery of the cross encoder's gain, mean latency, speedup over the cross encoder."""
    settings = analysis.settings
    rows: list[Row] = []
    for retriever in settings.retrievers:
        lines = analysis.lines(0, retriever)
        base = analysis.line(0, retriever, "retriever").macro()
        reference = analysis.line(0, retriever, "cross encoder")
        assert reference.latency is not None
        for line in lines:
            if not line.outcomes or line.latency is None:
                rows.append(Row((retriever, line.name, None, None, None, None), note=line.why))
                continue
            share = None if line.key == "retriever" else recovery(base, line.macro(), reference.macro())
            cost = line.latency.total
            rows.append(
                Row((retriever, line.name, line.macro(), share, cost, reference.latency.total / cost))
            )
            theirs = paper.find("table4", paper.model(retriever), paper.key(line.key))
            if theirs is not None:
                figures = (theirs["NDCG@5"], theirs["recovery"], theirs["latency_ms"], theirs["speedup"])
                names = (paper.model(retriever), paper.shown(line.key))
                rows.append(Row((*names, *figures), source=paper.SOURCE))
    return Table(
        "table4",
        f"Table 4. Accuracy and cost on {settings.families[0].name}",
        "Recovery is the share of the full cross encoder's gain over the retriever that a method keeps; "
        "latency "
        "is a mean over queries, retrieval included; speedup is against the full cross encoder.",
        (
            *words("retriever", "method"),
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
