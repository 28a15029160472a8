"""The tables of docs/real-documents.md, made from the files in results/."""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from benchmarks.markdown_tables import RESULTS, TableMakers, format_table, read_result
from benchmarks.real_documents_resample import MEASURE, OTHER_FOLDER, SELECTED, format_recovery
from benchmarks.real_documents_transfer import JUDGED, LABEL_FREE, ONE_READING, PAPER_JUDGED, PAPER_LABEL_FREE

MODELS = {"smollm2": "SmolLM2-135M", "qwen2.5_coder": "Qwen2.5-Coder-0.5B"}
FOLDERS = {"second": "second folder", "first": "first folder"}
KEEP, ALL = "stride 1/3", "stride 1"
READING = f"{KEEP}, likelihood, mean"
PAPER_READING = f"{KEEP}, margin, last"
TEACHER = f"teacher: likelihood, {JUDGED}"
CROSS_ENCODER = f"cross encoder, {JUDGED}"
JUDGED_ROW = f"{READING}, {JUDGED}"
DEPLOYED = f"{KEEP}, {SELECTED}, {LABEL_FREE}"
SHOWN = {
    "BM25": ("bm25", "retrieval"),
    "fused teacher: every page at full depth, likelihood": (TEACHER, "full passes"),
    "trained cross encoder, fused": (CROSS_ENCODER, "cross encoder"),
    "**RidgeRank, judged weight**": (JUDGED_ROW, f"{KEEP}, mean"),
    "**RidgeRank, no judgement, as deployed**": (DEPLOYED, f"{KEEP}, mean"),
    "all positions kept, judged weight": (f"{ALL}, likelihood, mean, {JUDGED}", f"{ALL}, mean"),
    "all positions kept, no judgement": (f"{ALL}, {SELECTED}, {LABEL_FREE}", f"{ALL}, mean"),
    "likelihood and mean, weight of §B.6": (f"{READING}, {PAPER_LABEL_FREE}", f"{KEEP}, mean"),
    "the paper's teacher fused: margin": (f"teacher: margin, {JUDGED}", "full passes"),
    "the paper's reading, eq. 4": (f"{PAPER_READING}, {PAPER_JUDGED}", f"{KEEP}, last"),
    "the paper's reading, §B.6": (f"{PAPER_READING}, {PAPER_LABEL_FREE}", f"{KEEP}, last"),
    "taught by the first folder: fused teacher": (f"{OTHER_FOLDER}{TEACHER}", "full passes"),
    "taught by the first folder: RidgeRank, judged weight": (
        f"{OTHER_FOLDER}{READING}, {JUDGED}",
        f"{KEEP}, mean",
    ),
    "taught by the first folder: RidgeRank, no judgement": (
        f"{OTHER_FOLDER}{KEEP}, {SELECTED}, {LABEL_FREE}",
        f"{KEEP}, mean",
    ),
}
"""Row of a table → row of a results file, and whose seconds a query are."""
NOT_MEASURED = "Not measured yet."


def read_results(folder: str, model: str) -> dict[str, Any] | None:
    """What was measured on a folder with a model; None where nothing was."""
    names = [
        f"real_documents_{folder}_{model}",
        *([f"real_documents_{model}"] * (folder == "first")),
    ]
    for name in names:
        if (RESULTS / f"{name}.json").exists():
            measured: dict[str, Any] = read_result(name)
            return measured
    return None


def has_deployed_rule(measured: Mapping[str, Any]) -> bool:
    """Whether weights without judgements are those of today's rule: older files have no intervals."""
    return "intervals" in measured


def format_gain(measured: Mapping[str, Any], name: str) -> str:
    """A gain with its interval over documents; without one where only questions were resampled."""
    row = measured["table"][name]
    if name == "bm25" or not has_deployed_rule(measured):
        return f"{row['gain']:+.1f}"
    return _with_interval(row, "gain")


def quality_table(folder: str, model: str) -> str:
    """The methods side by side: quality, gain, recovery, seconds a query."""
    measured = read_results(folder, model)
    if measured is None:
        return NOT_MEASURED
    seconds = measured.get("latency", {}).get("processor_seconds", {})
    rows = []
    for label, (name, method) in SHOWN.items():
        if name not in measured["table"] or (
            name.endswith(f", {LABEL_FREE}") and not has_deployed_rule(measured)
        ):
            continue
        recovered = measured["recovery"].get(name, {})
        spent = f"{seconds[method]:.2f}" if "retrieval" in seconds and method in seconds else ""
        quality = f"{measured['table'][name][MEASURE]:.1f}"
        recovery = format_recovery(recovered) if recovered else ""
        difference = _with_interval(recovered, "difference") if "difference" in recovered else ""
        rows.append([label, quality, format_gain(measured, name), recovery, difference, spent])
    header = ["", "nDCG@5", "gain over BM25", "share of its fused teacher's gain", "points over that teacher"]
    return format_table([*header, "seconds a query"], rows)


def weight_table() -> str:
    """Judged and label-free weights by folder and model."""
    rows = []
    for folder, model, measured in _all_results():
        weights = measured["weights"]
        ways = (JUDGED, ONE_READING, *([LABEL_FREE] if has_deployed_rule(measured) else []))
        cells = [_span(weights[f"{READING}, {way}"].values()) for way in ways]
        difference = "not run"
        if has_deployed_rule(measured):
            deployed, paper = (
                measured["table"][f"{READING}, {way}"]["gain"] for way in (LABEL_FREE, ONE_READING)
            )
            difference = f"{deployed - paper:+.1f}"
        rows.append([folder, model, *cells, *([""] * (3 - len(cells))), difference])
    return format_table(
        ["", "", "judged", "§B.6 of one reading", "as deployed", "points of the last over the one before"],
        rows,
    )


def correlation_table() -> str:
    """What scores share with relevance and with BM25."""
    rows = []
    for folder, model, measured in _all_results():
        for name in ("likelihood", "cross"):
            if name in measured["correlations"]:
                c_b, c_s, rho = (measured["correlations"][name][key] for key in ("c_b", "c_s", "rho"))
                cells = [f"{c_b:.2f}", f"{c_s:.2f}", f"{rho:.2f}", f"{rho / (c_b * c_s):.1f}"]
                label = "cross encoder" if name == "cross" else f"{model}, likelihood"
                rows.append([folder, label, *cells])
    unique = list(dict.fromkeys(map(tuple, rows)))
    return format_table(
        ["", "score", "c_b", "with relevance", "with BM25", "the latter over the product of the former two"],
        unique,
    )


def kind_table(folder: str) -> str:
    """Quality by kind of document, for the models that were measured."""
    models = {name: read for key, name in MODELS.items() if (read := read_results(folder, key))}
    if not models:
        return NOT_MEASURED
    header = ["kind", "documents", "questions", "BM25"]
    for name, measured in models.items():
        header += [f"{name}: fused teacher", "RidgeRank, judged"]
        header += ["no judgement"] if has_deployed_rule(measured) else []
    rows = []
    first = next(iter(models.values()))
    for kind, row in first["by_kind"].items():
        cells = [kind, str(row.get("documents", "")), str(row["questions"]), f"{row['bm25'][MEASURE]:.1f}"]
        for measured in models.values():
            names = [TEACHER, JUDGED_ROW, *([DEPLOYED] if has_deployed_rule(measured) else [])]
            cells += [f"{measured['by_kind'][kind][name][MEASURE]:.1f}" for name in names]
        rows.append(cells)
    return format_table(header, rows)


def kept_table() -> str:
    """What keeping fewer positions costs, on the first folder."""
    measured = read_result("real_documents_smollm2")
    rows = []
    for keep, size in sorted(measured["bytes_a_page"].items(), key=lambda item: (item[1], item[0])):
        r = [measured["readouts"][f"{keep}, likelihood, {state}"]["held_out_r"] for state in ("mean", "last")]
        fused = measured["table"][f"{keep}, likelihood, mean, {JUDGED}"][MEASURE]
        rows.append([keep, f"{size / 1e6:.2f}", *(f"{each:.2f}" for each in r), f"{fused:.1f}"])
    return format_table(
        ["kept", "MB a page", "held-out r, mean", "held-out r, last", "nDCG@5, judged weight"], rows
    )


def page_text_table() -> str:
    """The head of a long page, or both ends, on the first folder."""
    rows = []
    for file in ("smollm2", "smollm2_ends"):
        measured = read_result(f"real_documents_{file}")
        names = ("teacher: likelihood", TEACHER, JUDGED_ROW)
        cells = [f"{measured['table'][name][MEASURE]:.1f}" for name in names]
        r = measured["readouts"][READING]["held_out_r"]
        size = measured["bytes_a_page"][KEEP] / 1e6
        rows.append([measured["page_text"], *cells, f"{r:.2f}", f"{size:.2f}"])
    return format_table(
        ["page text", "teacher alone", "teacher fused", "judged weight", "r", "MB a page"],
        rows,
    )


def cost_table() -> str:
    """Seconds a query, retrieval included, and what a page costs once."""
    rows = []
    for folder, model, measured in _all_results():
        latency = measured.get("latency", {})
        note = "" if "retrieval" in latency.get("processor_seconds", {}) else ", retrieval not counted"
        for method, seconds in latency.get("processor_seconds", {}).items():
            keep = method.rpartition(", ")[0]
            if keep not in ("", KEEP, ALL):
                continue
            faster = latency["times_faster"].get(method)
            than_cross = latency.get("times_faster_than_cross_encoder", {}).get(method)
            offline = latency.get("offline_seconds_a_page", {}).get(keep)
            size = measured["bytes_a_page"].get(keep)
            rows.append(
                [
                    folder,
                    f"{model}, {latency['questions']} questions{note}",
                    method,
                    f"{seconds:.3f}",
                    f"{faster:.1f}x" if faster else "",
                    f"{than_cross:.1f}x" if than_cross else "",
                    f"{offline:.2f}" if offline else "",
                    f"{size / 1e6:.2f}" if size else "",
                ]
            )
    header = ["", "", "a query", "seconds", "faster than full passes", "than the cross encoder"]
    return format_table([*header, "once a page, seconds", "MB a page"], rows) if rows else NOT_MEASURED


def ocr_table() -> str:
    """Evidence without text, before and after OCR."""
    rows = []
    for folder, _, measured in _all_results():
        shares = measured["evidence_without_text"]
        cells = [f"{100 * shares[name]:.1f} %" for name in ("text layer", "in use")]
        rows.append([folder, str(measured["questions"]), *cells])
    unique = list(dict.fromkeys(map(tuple, rows)))
    return format_table(["", "questions", "text layer alone", "after OCR"], unique)


def _all_results() -> Iterable[tuple[str, str, dict[str, Any]]]:
    for folder, label in FOLDERS.items():
        for model, name in MODELS.items():
            if (measured := read_results(folder, model)) is not None:
                yield label, name, measured


def _with_interval(row: Mapping[str, Any], name: str) -> str:
    low, high = row[f"{name}_interval"]
    return f"{row[name]:+.1f} [{low:+.1f}, {high:+.1f}]"


def _span(values: Iterable[float]) -> str:
    known = list(values)
    return f"{min(known):.2f} to {max(known):.2f}"


REAL_DOCUMENTS_TABLES: TableMakers = {
    **{f"{folder} {model}": partial(quality_table, folder, model) for folder in FOLDERS for model in MODELS},
    **{f"kinds {folder}": partial(kind_table, folder) for folder in FOLDERS},
    "weights": weight_table,
    "correlations": correlation_table,
    "kept": kept_table,
    "page text": page_text_table,
    "cost": cost_table,
    "ocr": ocr_table,
}
