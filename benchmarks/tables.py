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


def readme_table() -> str:
    """What it gains and costs, each with what the figure does not show."""
    costs = _costs()
    limits = {"slides": "rules were chosen with these slides in view"}
    rows = []
    for row in rows_behind_bm25():
        columns = row["columns"]
        gains = [
            f"{named} {_format_gain(columns[name])}"
            for name, named in ((SHIPPED, "right after indexing"), (CALIBRATED, "calibrated"))
            if name in columns
        ]
        shown = f"{row['retriever']} {columns[RETRIEVED][MEASURE]:.1f}; {'; '.join(gains)}"
        within_chance = columns.get(SHIPPED, columns[RETRIEVED])["interval"][0] <= 0
        limit = "the gain is within chance" if within_chance else "one small model"
        what = f"**gains** on text of `{row['set']}`, {row['questions']} questions, read by {row['model']}"
        rows.append([what, shown, limits.get(row["set"], limit)])
    for backbone in BACKBONES[:1]:
        names = f"RidgeRank ({backbone})", f"RidgeRank ({backbone}), label-free weight", "No reranking"
        judged, blind, alone = (costs[name]["nDCG@5"] for name in names)
        full, faster = _cross_encoder(backbone)["nDCG@5"], _format_speedup(costs[names[0]])
        shown = f"retriever {alone:.1f}; full model {full:.1f}; RidgeRank {judged:.1f}, "
        shown += f"{blind:.1f} without judgements; {faster} faster than the full model"
        limit = "pages of some thirty words, and models trained to read them: the pipeline, not the quality"
        rows.append([f"the **paper's protocol** on drawn pages, read by `{backbone}`", shown, limit])
    for row in read_result("compression")["rows"]:
        if row["default"] and not row["backbone"].startswith("mini"):
            disk, memory = row["bytes_per_page"] / 1e3, row["bytes_cached"] / 1e3
            shown = f"{disk:.0f} kB per page, {memory:,.0f} kB in memory"
            limit = "larger models need more; the time to index was not measured for these settings"
            rows.append([f"**costs** of a store by the defaults, {row['backbone']}", shown, limit])
    return format_table(["", "measured", "what it does not show"], rows)


def rows_behind_bm25() -> list[Any]:
    """The rows of real documents behind BM25; the file has those behind other retrievers, too."""
    return [row for row in read_result("quality") if row["retriever"] == "bm25" and "/" not in row["set"]]


def _format_gain(cell: Mapping[str, Any]) -> str:
    low, high = cell["interval"]
    return f"{cell[MEASURE]:.1f} ({cell['gain']:+.1f} [{low:+.1f}, {high:+.1f}])"


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
    """Processor time of indexing and of a request, against an earlier commit and the full cross encoder."""
    rows = []
    for row in read_result("speed")["rows"]:
        for way in ("float32", "bfloat16"):
            each = row["ratios"][way]
            rows.append(
                [
                    f"{row['name']}, {way}",
                    f"{each['index over base']:.2f}",
                    f"{each['base request over this']:.2f}x [{each['from']:.2f}, {each['to']:.2f}]",
                    f"{each['full over request']:.1f}x",
                    f"{each['full over pass']:.1f}x",
                ]
            )
    header = ["", "time to index", "a request, as fast", "than the full cross encoder", "the pass alone"]
    return format_table(header, rows)


def compression_table(measured: Sequence[Mapping[str, Any]]) -> str:
    """Settings that were measured, the paper's first for each backbone and set."""

    def show(value: float | None, style: str, unit: str = "") -> str:
        return "–" if value is None else format(value, style) + unit

    rows = [
        [
            row["backbone"],
            row["set"],
            row["setting"] + (" (`small`)" if row["default"] else ""),
            f"{row['bytes_per_page'] / 1e3:,.1f}",
            show(row["bytes_cached"] and row["bytes_cached"] / 1e3, ",.0f"),
            show(row["states_kept"] and 100 * row["states_kept"], ".0f", " %"),
            show(row["agreement"], ".3f"),
            show(row["recovery_percent"], ".1f", " %"),
            show(row["time_ratio"], ".2f"),
        ]
        for row in measured
    ]
    header = ["backbone", "set", "setting", "kB per page", "kB in memory", "states kept", "r", "recovery"]
    return format_table([*header, "time"], rows)


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


def doors_table() -> str:
    """nDCG@5 through every door, beside the orders it may be compared with."""
    rows = []
    for door in read_result("doors")["doors"]:
        orders = [f"{door[each]:.1f}" if each in door else "–" for each in ("caller", "bm25")]
        rows.append([door["door"], *orders, _format_gain(door)])
    return format_table(["", "caller's order", "BM25", "reranked"], rows)


def doors_figures() -> str:
    """What was answered and reranked, and all doors together, each question counted once."""
    result, names = read_result("doors"), ("answered", "reranked", "say_if_reranked")
    answered, reranked, said = (sum(door[name] for door in result["doors"]) for name in names)
    asked = " and ".join(f"{count} questions of {name}" for name, count in result["questions"].items())
    requests = len(result["doors"]) * sum(result["questions"].values())
    counts = f"{answered:,} of {requests:,} requests answered, {reranked:,} of {said:,} lists reranked"
    return f"{asked}: {counts}, all doors together {_format_gain(result['together'])}"


def cost_figures() -> str:
    """Processor seconds of 20 texts in no store, of the same again and of a cross encoder."""
    cost = read_result("doors")["processor seconds of a list"]
    ours = f"{cost['texts']:.1f} s of one core the first time, {cost['texts again']:.1f} s again"
    return f"{ours}; a trained cross encoder takes {cost['cross encoder']:.1f} s"


def claims_table() -> str:
    """The claims that do not hold and why; directions.json has all of them, with thresholds and figures."""
    claims = [claim for claim in read_result("miniature/reproduce/directions") if not claim["holds"]]
    reasons = [claim["reason"] or "not known" for claim in claims]
    shown = [
        "as above" if reason == above else reason
        for above, reason in zip(["", *reasons], reasons, strict=False)
    ]
    lines = [[claim["claim"], reason] for claim, reason in zip(claims, shown, strict=True)]
    return f"{claims_figure()}. The others:\n\n{format_table(['does not hold', 'why'], lines)}"


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
            f"{shape.parameters * _HALF_PRECISION_BYTES / 1e9:.1f}",
            f"{shape.page_positions:,}{' of text' if shape.reads_text else ''}",
            f"{sizes['paper'] / 1e6:.2f}",
            f"{sizes['small'] / 1e6:.2f}",
        ]
        rows.append((sizes["small"], cells))
    header = ["model", "weights in bfloat16, GB", "positions of a page", "`paper`, MB", "`small`, MB"]
    return format_table(header, [cells for _, cells in sorted(rows, key=lambda row: row[0])])


TABLES: TableMakers = {
    "readme": readme_table,
    "quality": quality_figures,
    "label-free quality": label_free_figures,
    "claims that hold": claims_figure,
    "speedup": speedup_figures,
    "speed": speed_table,
    "ways to a weight": lambda: format_rows(rows_behind_bm25()),
    "compression": lambda: compression_table(
        [
            row
            for row in read_result("compression")["rows"]
            if row["default"] or row.get("commit") or "int8" in row["setting"]
        ]
    ),
    "methods": methods_table,
    "doors": doors_table,
    "all doors": doors_figures,
    "cost of texts": cost_figures,
    "claims": claims_table,
    "run": run_summary,
    "model bytes": model_bytes_table,
}


if __name__ == "__main__":
    main()
