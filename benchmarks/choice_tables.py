"""The tables of docs/storage.md, of the weight in docs/fusion.md, and of the band in docs/benchmarks.md."""

from collections.abc import Mapping
from typing import Any

from benchmarks.markdown_tables import TableMakers, format_table, read_result
from ridgerank.shipped_models import BACKBONES


def compression_table() -> str:
    """Every setting that was measured, the paper's first for each backbone."""
    measured = read_result("compression")["rows"]
    rows = []
    for row in measured:
        first = next(each for each in measured if each["backbone"] == row["backbone"])
        rows.append(
            [
                row["backbone"],
                row["keep"],
                row["bits"],
                str(row["exit_layer"]),
                f"{row['bytes_per_page'] / 1e3:,.0f}",
                f"{row['bytes_per_page'] / first['bytes_per_page']:.2f}",
                f"{row['agreement']:.3f}",
                f"{row['ndcg_at_5']:.1f}",
                "–" if row["recovery_percent"] is None else f"{row['recovery_percent']:.1f} %",
                f"{row['pass_time_ratio']:.2f}",
            ]
        )
    header = [
        "backbone",
        "kept",
        "bits",
        "exit",
        "kB a page",
        "of the paper's",
        "r",
        "nDCG@5",
        "recovery",
        "time",
    ]
    return format_table(header, rows)


def small_pages_table() -> str:
    """Megabytes of a page of large models in some settings."""
    pages = read_result("scale")["small_pages"]
    models = list(next(iter(pages.values())))
    rows = [[setting, *(f"{sizes[model]:.2f} MB" for model in models)] for setting, sizes in pages.items()]
    return format_table(["", *models], rows)


def band_table() -> str:
    """A band of layers: how fast, and what it costs in ranking."""
    speeds = {
        each["join_layer"] / 21: each["ratio"]
        for each in read_result("shallow_speed")["shapes"][0]["by_join_layer"]
    }
    rows = []
    for row in read_result("miniature/band")["rows"]:
        share = row["join_layer"] / row["exit_layer"]
        speed = next((f"{ratio}x" for part, ratio in speeds.items() if abs(part - share) < 0.01), "–")
        layers = f"{row['join_layer']} of {row['exit_layer']}"
        rows.append([layers, f"{row['ndcg_at_5']:.1f}", f"{row['recovery_percent']:.1f} %", speed])
    return format_table(
        ["join layer, `mini-qwen`", "nDCG@5", "recovery", "faster, at the same share of 21 layers"], rows
    )


def weight_trust_table() -> str:
    """nDCG@5 at several weights: the miniature together, each folder of real documents by itself."""
    rows = read_result("weight_trust")["rows"]
    drawn = [row for row in rows if row["backbone"] in BACKBONES]
    groups = {f"miniature, {name}": [row for row in drawn if row["backbone"] == name] for name in BACKBONES}
    groups |= {f"`{row['corpus']}`, {row['backbone']}": [row] for row in rows if row not in drawn}
    header = [
        "corpora",
        "queries",
        "retriever",
        "w = 0.5",
        "§B.6",
        "no judgements",
        "16 judged",
        "all judged",
    ]
    lines = []
    for name, group in groups.items():
        means = [
            sum(row["ndcg_at_5"][method] for row in group) / len(group)
            for method in ("retriever", "half", "paper", "label_free", "few_judged", "judged")
        ]
        held = sum(row["holds_judged"] for row in group)
        queries = sum(row["queries"] for row in group)
        shown = [f"{mean:.1f}" for mean in means]
        lines.append([f"{name} ({len(group)})", f"{queries:,}", *shown, f"{held} of {len(group)}"])
    return format_table([*header, "interval holds w*"], lines)


def compression_trials_table() -> str:
    """Recovery and r of compressions that are not built, beside those that are."""
    rows = read_result("compression_trials")["rows"]
    backbones = list(dict.fromkeys(row["backbone"] for row in rows))
    by_trial: dict[str, dict[str, Any]] = {}
    for row in rows:
        by_trial.setdefault(row["trial"], {})[row["backbone"]] = row
    lines = [[trial, *(_show_trial(of[name]) for name in backbones)] for trial, of in by_trial.items()]
    return format_table(["kept by value norm, bits", *(f"recovery, `{name}`" for name in backbones)], lines)


def _show_trial(row: Mapping[str, Any]) -> str:
    return f"{row['recovery_percent']:.1f} %, r {row['agreement']:.3f}"


def penalty_table() -> str:
    """r on other documents by the number of lists and by how the penalty is chosen."""
    result = read_result("agreement")
    rules = [rule for rule in result["rows"][0]["agreement"] if rule != "next part"]
    header = ["questions", "lists", "next part", *(f"{rule}, gain" for rule in rules)]
    lines = []
    for row in result["rows"]:
        gains = (row["gain"][rule] for rule in rules)
        shown = [f"{gain['mean']:+.3f} ± {gain['error']:.3f}" for gain in gains]
        lines.append([row["folder"], str(row["lists"]), f"{row['agreement']['next part']:.3f}", *shown])
    return format_table(header, lines)


def weight_row() -> list[str]:
    """The line of docs/evidence.md on the weight without judgements."""
    summary = read_result("weight_trust")["summary"]["miniature"]
    losses = summary["mean_loss_to_judged"]
    return [
        "the weight we deploy without judgements",
        f"loses {losses['label_free']:+.1f} points of nDCG@5 to w* of all judgements on average, "
        f"{summary['largest_loss_to_judged']['label_free']:.1f} at most (§B.6 {losses['paper']:+.1f}, "
        f"w = 0.5 {losses['half']:+.1f}, 16 judged queries combined with it {losses['few_judged']:+.1f}); "
        f"its interval holds w* in {summary['interval_holds_judged_percent']:.0f} %",
        f"{summary['corpora']} calibrations of the miniature, each on its own queries, held-out scores",
        "a negative loss ranks better than w*, which maximizes a correlation and not nDCG@5",
        "[weight_trust](../results/weight_trust.json), `python -m benchmarks.weight_trust`",
        "that it holds for other models: its constants were chosen with these corpora in view",
    ]


CHOICE_TABLES: TableMakers = {
    "weight trust": weight_trust_table,
    "penalty rules": penalty_table,
    "compression trials": compression_trials_table,
    "compression": compression_table,
    "small pages": small_pages_table,
    "band": band_table,
}
