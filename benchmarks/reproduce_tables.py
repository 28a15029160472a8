"""The tables of docs/reproduce.md, made from the committed run of `ridgerank reproduce`."""

from statistics import fmean
from typing import Any

from benchmarks.markdown_tables import TableMakers, format_table, read_result

_FIRST = "mini-colqwen"


def quality_table() -> str:
    """nDCG@5 of every method, macro over the corpora of a family, behind each retriever (tables 1 and 2)."""
    columns: list[tuple[str, str]] = []
    by_method: dict[str, dict[tuple[str, str], float]] = {}
    for name in ("table1", "table2"):
        for retriever, method, average, *_ in _rows(name):
            if (name, retriever) not in columns:
                columns.append((name, retriever))
            by_method.setdefault(method, {})[name, retriever] = average
    families = {"table1": "miniature-1", "table2": "miniature-2"}
    head = ["", *(f"{families[name]}, {retriever}" for name, retriever in columns)]
    lines = [
        [method, *(f"{row[each]:.1f}" if each in row else "–" for each in columns)]
        for method, row in by_method.items()
    ]
    return format_table(head, lines)


def cost_table() -> str:
    """RidgeRank and the cross encoders behind the first retriever (table 4)."""
    head = [
        "behind mini-colqwen", "nDCG@5", "recovery of the single reference", "of its own cross encoder",
        "latency, ms (95 %)", "faster (95 %)",
    ]  # fmt: skip
    table = read_result("miniature/reproduce/table4")
    lines = []
    for cells in _rows("table4"):
        row = dict(zip(table["columns"], cells, strict=True))
        shown = ("RidgeRank", "Full cross encoder", "GQR")
        if row["retriever"] == _FIRST and row["method"].startswith(shown):
            lines.append(
                [
                    row["method"],
                    f"{row['nDCG@5']:.1f}",
                    _format(row.get("recovery, %"), ".1f", " %"),
                    _format(row.get("recovery of its own cross encoder, %"), ".1f", " %"),
                    _format_interval(row, "latency, ms", "latency", ",.1f", ""),
                    _format_interval(row, "speedup", "speedup", ".1f", "x"),
                ]
            )
    return format_table(head, lines)


def claims_table() -> str:
    """Every claim, those that do not hold included (directions.json)."""
    claims = read_result("miniature/reproduce/directions")
    head = ["claim", "in the paper", "the paper's threshold", "measured", "here", "why not, where known"]
    lines = [
        [
            claim["claim"], claim["where"], claim["threshold"], claim["measured"],
            "holds" if claim["holds"] else "**does not hold**", claim["reason"],
        ]
        for claim in claims
    ]  # fmt: skip
    held = sum(claim["holds"] for claim in claims)
    return f"{held} of {len(claims)} hold.\n\n{format_table(head, lines)}"


def run_summary() -> str:
    """How long the run took, and the weights in one sentence."""
    run = read_result("miniature/reproduce/run")
    minutes = run["minutes"]
    weights = [row[4:6] for row in _rows("weights")]
    shift = fmean(predicted - measured for predicted, measured in weights)
    low, high = min(min(pair) for pair in weights), max(max(pair) for pair in weights)
    side = "above" if shift > 0 else "below"
    return (
        f"All predicted and measured weights lie between {low:.2f} and {high:.2f}; w* lies {side} the "
        f"measured weight by {abs(shift):.2f} on average.\n\n"
        + _duration(minutes, resumed=run["stages from before"])
    )


def _duration(minutes: dict[str, float], *, resumed: bool) -> str:
    if resumed:
        return f"Stages were computed in several runs; the tables took {minutes['tables']:.0f} minutes."
    return (
        f"The run took {minutes['stages'] + minutes['tables']:.0f} minutes, of which the tables took "
        f"{minutes['tables']:.0f}, or {minutes['processor']:.0f} minutes of one core."
    )


def _format(value: float | None, number_format: str, unit: str) -> str:
    """A number, or a dash for what a run did not measure."""
    return "–" if value is None else f"{value:{number_format}}{unit}"


def _format_interval(row: dict[str, Any], name: str, stem: str, number_format: str, unit: str) -> str:
    shown = _format(row.get(name), number_format, unit)
    ends = [row.get(f"{stem} {end}") for end in ("from", "to")]
    if None in ends:
        return shown
    return f"{shown} ({ends[0]:{number_format}} to {ends[1]:{number_format}})"


def _rows(name: str) -> list[list[Any]]:
    """What was measured; rows of the paper and of what was not run are left out."""
    rows = read_result(f"miniature/reproduce/{name}")["rows"]
    return [row["cells"] for row in rows if row["source"] == "this run" and "note" not in row]


REPRODUCE_TABLES: TableMakers = {
    "methods": quality_table,
    "costs": cost_table,
    "claims": claims_table,
    "run": run_summary,
}
