"""The tables of docs/models.md: bytes per page by arithmetic, and what other teachers were measured to do."""

from collections.abc import Mapping
from typing import Any

from benchmarks.markdown_tables import RESULTS, TableMakers, format_table, read_result
from benchmarks.real_documents_resample import BASE, MEASURE
from benchmarks.real_documents_tables import NOT_MEASURED
from benchmarks.real_documents_transfer import JUDGED, LABEL_FREE
from benchmarks.teachers import STUDENT, TEXT_TEACHERS
from ridgerank.store.page_bytes import count_page_bytes
from ridgerank.store.sizing import MODELS
from ridgerank.store.storage_setting import STORAGE_PRESETS, StorageSetting

_HALF_PRECISION_BYTES = 2


def model_bytes_table() -> str:
    """Megabytes per page of every model that can be planned for, smallest first."""
    rows = []
    for name, shape in MODELS.items():
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


def text_teachers_table() -> str:
    """A text model's readouts of two teachers on real documents, and the teachers themselves."""
    measured = read_result("teachers")["text"]
    labels = {BASE: "BM25"}
    for name in TEXT_TEACHERS.values():
        labels |= {name: f"{name}, alone", f"{name}, fused": f"{name}, fused at a judged weight"}
        labels[f"readout of {name}"] = f"**readout of {name}**, alone"
        labels[f"readout of {name}, fused, {JUDGED}"] = f"**readout of {name}**, judged weight"
        labels[f"readout of {name}, fused, {LABEL_FREE}"] = f"**readout of {name}**, no judgement"
    rows = []
    for name, label in labels.items():
        row = measured["table"][name]
        low, high = row["gain_interval"]
        teacher = name.removeprefix("readout of ")
        agreement = ["", ""]
        if name.startswith("readout of ") and teacher in measured["readouts"]:
            held_out = measured["readouts"][teacher]["held_out_r"]
            agreement = [f"{held_out[each]:.2f}" for each in TEXT_TEACHERS.values()]
        gain = "" if name == BASE else f"{row['gain']:+.1f} [{low:+.1f}, {high:+.1f}]"
        rows.append([label, f"{row[MEASURE]:.1f}", gain, *agreement])
    return format_table(["", "nDCG@5", "gain over BM25", "r with its likelihood", "r with the encoder"], rows)


def miniature_teachers_table() -> str:
    """A miniature taught by itself and by the other one."""
    rows = []
    for row in read_result("teachers")["miniature"]["rows"]:
        ndcg = row["ndcg_at_5"]
        agreements = [each["agreement with the full model"] for each in row["by_corpus"].values()]
        rows.append(
            [
                row["retriever"],
                f"`{row['teacher']}`" + (" (itself)" if row["teacher"] == STUDENT else ""),
                f"{sum(agreements) / len(agreements):.2f}",
                *(f"{ndcg[each]:.1f}" for each in ("retriever", "cross encoder, fused", "readout")),
                f"{ndcg['ridgerank']:.1f}",
                f"{ndcg['ridgerank, label free']:.1f}",
                f"{row['recovery_percent']:.1f} %",
            ]
        )
    header = ["retriever", "teacher", "r", "retriever alone", "teacher fused", "readout alone"]
    return format_table(
        [*header, "RidgeRank, judged weight", "no judgement", "recovery of that teacher"], rows
    )


def full_size_table() -> str:
    """What the rehearsal at full size took, once it was run."""
    if not (RESULTS / "full_size.json").exists():
        return NOT_MEASURED
    measured = read_result("full_size")
    sizes = [measured, measured["seven_billion"]] if "seven_billion" in measured else [measured]
    return "\n\n".join(map(format_full_size, sizes))


def format_full_size(measured: Mapping[str, Any]) -> str:
    """The rows of one rehearsal."""
    run, loading = measured["rehearsal"], measured["loading"]
    rows = [
        ["weights in memory", f"{run['weights_bytes'] / 1e9:.1f} GB", f"{run['layers']} layers"],
        ["pages of 1,280 positions", f"{run['pages']}", run.get("why_not_twenty_pages", "")],
        [
            "peak memory above the weights",
            f"{run['peak_above_weights_mib']:,} MiB",
            f"bar: {run['memory_bar_mib']:,}",
        ],
        [
            "bytes per page",
            f"{run['bytes_per_page']:,}",
            f"{100 * run['bytes_per_page_above_arithmetic']:+.1f} % of the arithmetic; "
            f"bar: {100 * run['bytes_bar']:.0f} %",
        ],
        [
            "loading, then the fingerprint",
            f"{loading['load_cpu_seconds']:.1f} s, {loading['fingerprint_cpu_seconds']:.1f} s",
            "CPU",
        ],
    ]
    rows += [[f"`{step['command']}`", f"{step['cpu_seconds']:,.0f} s", "CPU"] for step in run["steps"]]
    rows += [
        [
            f"pairs of pages in one order in bfloat16 and float32: {row['model']}",
            f"{100 * row['same_order']:.1f} %",
            f"{row['pages']} pages, {row['queries']} queries",
        ]
        for row in measured.get("agreement", [])
    ]
    return format_table([measured["model"], "", ""], rows)


MODEL_TABLES: TableMakers = {
    "full size": full_size_table,
    "model bytes": model_bytes_table,
    "text teachers": text_teachers_table,
    "miniature teachers": miniature_teachers_table,
}
