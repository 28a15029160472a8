"""Write every table of README and docs/ that shows a measurement, from the files in results/.

    python -m benchmarks.tables            # after new results: rewrite the pages
    python -m benchmarks.tables --check    # name the pages that differ, change nothing

A table stands in a page between `<!-- table NAME -->` and `<!-- end -->`, a figure within a line between
`<!-- figure NAME -->` and `<!-- end -->`.
"""

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from experiments.weight_table import CALIBRATED, MEASURE, SHIPPED, format_rows
from experiments.weight_table import RETRIEVER as RETRIEVED
from ridgerank.lineage import STORAGE_PRESETS, StorageSetting
from ridgerank.store.layout import MODEL_SHAPES as SHAPES
from ridgerank.store.layout import count_page_bytes

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
TableMakers = Mapping[str, Callable[[], str]]
"""Name of a table in the pages → what makes it."""
RETRIEVER = "mini-colqwen"
BACKBONES = ("mini-qwen", "mini-glm")
OWN_RECOVERY = "recovery of its own cross encoder, %"
_HALF_PRECISION_BYTES = 2


def outdated_pages() -> dict[Path, str]:
    """Pages whose tables are not what the results say → the page as it should be."""
    current = {page: page.read_text(encoding="utf-8") for page in PAGES}
    renewed = {page: insert_tables(text, TABLES) for page, text in current.items()}
    return {page: text for page, text in renewed.items() if text != current[page]}


def main() -> None:
    """Rewrite the pages, or check them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="exit with 1 where a page differs")
    check = parser.parse_args().check
    outdated = outdated_pages()
    for page, text in outdated.items():
        print(f"{page.relative_to(ROOT)}: {'differs from results/' if check else 'written'}")
        if not check:
            page.write_text(text, encoding="utf-8")
    sys.exit(bool(outdated) if check else 0)


def format_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; a bar within a cell is written as a slash."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |" for cells in lines)


def read_result(name: str) -> Any:  # noqa: ANN401 (any JSON value)
    """What a file in results/ holds."""
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def insert_tables(page: str, makers: TableMakers) -> str:
    """The page with the tables and figures it names; a name that no maker has is an error."""

    def insert(match: re.Match[str]) -> str:
        around = "\n\n" if match[1] == "table" else ""
        return f"<!-- {match[1]} {match[2]} -->{around}{makers[match[2]]()}{around}<!-- end -->"

    return re.sub(r"<!-- (table|figure) (.+?) -->.*?<!-- end -->", insert, page, flags=re.DOTALL)


def table_names(page: str) -> list[str]:
    """The tables and figures a page names."""
    return re.findall(r"<!-- (?:table|figure) (.+?) -->", page)


def readme_table() -> str:
    """The first family of the miniature behind the first retriever, from table 4."""
    costs = _costs()
    rows = []
    for backbone in BACKBONES:
        judged, blind = costs[f"RidgeRank ({backbone})"], costs[f"RidgeRank ({backbone}), label-free weight"]
        rows.append(
            [
                f"`{backbone}`",
                f"{costs['No reranking']['nDCG@5']:.1f}",
                f"{_cross_encoder(backbone)['nDCG@5']:.1f}",
                f"{judged['nDCG@5']:.1f}",
                f"{judged[OWN_RECOVERY]:.1f} %",
                f"{blind['nDCG@5']:.1f}",
                f"{blind[OWN_RECOVERY]:.1f} %",
                _format_speedup(judged),
            ]
        )
    header = ["backbone", "retriever", "full cross encoder, fused", "RidgeRank, judged weight", "recovery"]
    return format_table([*header, "RidgeRank, no judgements", "recovery", "faster"], rows)


def readme_real_documents() -> str:
    """What a readout that comes with the package gains, and one fitted to these pages."""

    def gain(cell: dict[str, Any] | None) -> str:
        if cell is None:
            return "–"
        low, high = cell["interval"]
        return f"{cell[MEASURE]:.1f} ({cell['gain']:+.1f} [{low:+.1f}, {high:+.1f}])"

    rows = [
        [
            row["set"],
            str(row["questions"]),
            f"{row['columns'][RETRIEVED][MEASURE]:.1f}",
            *(gain(row["columns"].get(name)) for name in (SHIPPED, CALIBRATED)),
        ]
        for row in read_result("weight")
        if row["retriever"] == "bm25"
    ]
    header = ["documents", "questions", "BM25", "RidgeRank after indexing", "calibrated on these pages"]
    return format_table(header, rows)


def _costs() -> dict[str, dict[str, Any]]:
    """Table 4 behind the first retriever: method → its cells by column."""
    table = read_result("miniature/reproduce/table4")
    columns = table["columns"]
    rows = [
        dict(zip(columns, row["cells"], strict=True)) for row in table["rows"] if row["source"] == "this run"
    ]
    return {row["method"]: row for row in rows if row["retriever"] == RETRIEVER}


def _cross_encoder(backbone: str) -> dict[str, Any]:
    """A backbone's own full cross encoder, fused; the first backbone's is the paper's single reference."""
    costs = _costs()
    return costs.get(f"Full cross encoder of {backbone}") or costs["Full cross encoder"]


def quality_figures() -> str:
    """nDCG@5 of RidgeRank with each backbone, of the full models and of the retriever."""
    costs = _costs()
    scores = " and ".join(
        f"{row['nDCG@5']:.1f} ({row[OWN_RECOVERY]:.1f} % of the gain of "
        f"{_cross_encoder(backbone)['nDCG@5']:.1f})"
        for backbone in BACKBONES
        for row in [costs[f"RidgeRank ({backbone})"]]
    )
    return f"nDCG@5 {scores}; retriever {costs['No reranking']['nDCG@5']:.1f}"


def label_free_figures() -> str:
    """nDCG@5 at the label-free weight."""
    rows = [_costs()[f"RidgeRank ({backbone}), label-free weight"] for backbone in BACKBONES]
    return "nDCG@5 " + " and ".join(f"{row['nDCG@5']:.1f} ({row[OWN_RECOVERY]:.1f} %)" for row in rows)


def claims_figure() -> str:
    """How many claims hold."""
    claims = read_result("miniature/reproduce/directions")
    return f"{sum(claim['holds'] for claim in claims)} of {len(claims)} hold"


def _format_speedup(row: Mapping[str, Any]) -> str:
    return f"{row['speedup']:.1f}x [{row['speedup from']:.1f}, {row['speedup to']:.1f}]"


def speedup_figures() -> str:
    """How much faster than the full cross encoder, with each backbone."""
    return " and ".join(_format_speedup(_costs()[f"RidgeRank ({backbone})"]) for backbone in BACKBONES)


def speed_table() -> str:
    """Speed against what one would use instead."""
    speed, load = read_result("speed"), read_result("serving")
    rows = []
    for shape in speed["shapes"]:
        rows.append(
            [
                f"a query over 20 stored pages, exit layer 21 of 28; {shape['visual_positions']:,} visual "
                f"positions, {shape['suffix']} tokens after the page",
                "20 full passes of the same model",
                f"{shape['ratio']}x faster, fastest runs {shape['ratio_of_fastest']}x; operations allow "
                f"{shape['operations_allow']}x",
            ]
        )
        small = shape["small_preset"]
        rows.append(
            [
                f"the same, preset `small`: {small['kept']} positions, coded",
                f"`paper`: {shape['kept']} positions in int8",
                f"{small['time_ratio']} of its time, fastest runs {small['time_ratio_of_fastest']}",
            ]
        )
    rows += [
        [
            "eight callers of `ridgerank serve`",
            "one caller",
            f"{load['throughput_eight_over_one']}x its answers",
        ],
        ["ten times the callers it admits", "p99 at capacity", f"{load['p99_ten_times_over_capacity']}x it"],
    ]
    return format_table(["what", "against", "result"], rows)


def compression_table(measured: Sequence[Mapping[str, Any]] | None = None) -> str:
    """Every setting that was measured, now or for results/, the paper's first for each backbone."""
    measured = measured or read_result("compression")["rows"]
    rows = []
    for row in measured:
        first = next(each for each in measured if each["backbone"] == row["backbone"])
        rows.append(
            [
                row["backbone"],
                row["setting"] + (" (`small`)" if row["default"] else ""),
                f"{row['bytes_per_page'] / 1e3:,.1f}",
                f"{row['bytes_per_page'] / first['bytes_per_page']:.2f}",
                f"{row['bytes_cached'] / 1e3:,.0f}",
                f"{100 * row['states_kept']:.0f} %",
                f"{row['time_ratio']:.2f}",
            ]
        )
    header = ["backbone", "setting", "kB a page", "of the first", "kB in memory", "states kept", "time"]
    return format_table(header, rows)


def methods_table() -> str:
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


def costs_table() -> str:
    """RidgeRank and the cross encoders behind the first retriever (table 4)."""
    head = ["behind mini-colqwen", "nDCG@5", "recovery of the single reference", "of its own cross encoder"]
    head += ["latency, ms (95 %)", "faster (95 %)"]
    lines = [
        [
            row["method"],
            f"{row['nDCG@5']:.1f}",
            _format(row.get("recovery, %"), ".1f", " %"),
            _format(row.get(OWN_RECOVERY), ".1f", " %"),
            _format_interval(row, "latency, ms", "latency", ",.1f", ""),
            _format_interval(row, "speedup", "speedup", ".1f", "x"),
        ]
        for row in _costs().values()
        if row["method"].startswith(("RidgeRank", "Full cross encoder", "GQR"))
    ]
    return format_table(head, lines)


def claims_table() -> str:
    """The claims that do not hold, each with the paper's threshold; directions.json has all of them."""
    claims = [claim for claim in read_result("miniature/reproduce/directions") if not claim["holds"]]
    head = ["does not hold", "the paper's threshold", "measured", "why, where known"]
    lines = [[claim[name] for name in ("claim", "threshold", "measured", "reason")] for claim in claims]
    return f"{claims_figure()}. The others:\n\n{format_table(head, lines)}"


def run_summary() -> str:
    """How long the run took, and the weights in one sentence."""
    run = read_result("miniature/reproduce/run")
    minutes = run["minutes"]
    weights = [row[4:6] for row in _rows("weights")]
    shift = fmean(predicted - measured for predicted, measured in weights)
    low, high = min(min(pair) for pair in weights), max(max(pair) for pair in weights)
    side = "above" if shift > 0 else "below"
    duration = (
        f"Stages were computed in several runs; the tables took {minutes['tables']:.0f} minutes."
        if run["stages from before"]
        else f"The run took {minutes['stages'] + minutes['tables']:.0f} minutes, of which the tables took "
        f"{minutes['tables']:.0f}, or {minutes['processor']:.0f} minutes of one core."
    )
    return (
        f"All predicted and measured weights lie between {low:.2f} and {high:.2f}; w* lies {side} the "
        f"measured weight by {abs(shift):.2f} on average.\n\n{duration}"
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


def model_bytes_table() -> str:
    """Megabytes per page of every model that can be planned for, smallest first."""
    rows = []
    for name, shape in SHAPES.items():
        sizes = {
            preset: count_page_bytes(
                shape, StorageSetting.from_preset(preset, layers=shape.layers, reads_text=shape.reads_text)
            )
            for preset in STORAGE_PRESETS
        }
        cells = [
            f"`{name}`",
            f"{shape.parameters * _HALF_PRECISION_BYTES / 1e9:.1f} GB",
            f"{shape.layers} x {shape.kv_heads} x {shape.head_dim}",
            f"{shape.page_positions:,}{' of text' if shape.reads_text else ''}",
            f"{sizes['paper'] / 1e6:.2f} MB",
            f"{sizes['small'] / 1e6:.2f} MB",
        ]
        rows.append((sizes["small"], cells))
    header = ["model", "weights in bfloat16", "layers x KV heads x size", "positions of a page"]
    return format_table(
        [*header, "paper's setting", "`small`"], [cells for _, cells in sorted(rows, key=lambda row: row[0])]
    )


def stress_table() -> str:
    """What the stress test did, and what was lost by it."""
    report = read_result("stress")
    faults = ", ".join(f"{kind} {number}" for kind, number in report["faults_by_kind"].items())
    done = [f"{report['seconds'] / 60:g}", f"{report['operations']:,}", f"{report['kills']}"]
    row = [*done, faults, f"{report['lost']}", f"{report['wrong']}"]
    return format_table(["minutes", "operations", "kills", "faults", "lost", "wrong"], [row])


TABLES: TableMakers = {
    "readme": readme_table,
    "readme real documents": readme_real_documents,
    "quality": quality_figures,
    "label-free quality": label_free_figures,
    "claims that hold": claims_figure,
    "speedup": speedup_figures,
    "speed": speed_table,
    "ways to a weight": lambda: format_rows(read_result("weight")),
    "compression": compression_table,
    "methods": methods_table,
    "costs": costs_table,
    "claims": claims_table,
    "run": run_summary,
    "model bytes": model_bytes_table,
    "stress": stress_table,
}


if __name__ == "__main__":
    main()
