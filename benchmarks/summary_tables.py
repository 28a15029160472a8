"""The tables of README, docs/evidence.md and docs/benchmarks.md: a line for each thing that was measured."""

from typing import Any

from benchmarks.abstention_tables import ANY, JUDGED, REPORTED, SCORES, select_rows
from benchmarks.choice_tables import weight_row
from benchmarks.markdown_tables import TableMakers, format_table, read_result
from benchmarks.real_documents_resample import format_recovery
from benchmarks.real_documents_tables import (
    CROSS_ENCODER,
    DEPLOYED,
    FOLDERS,
    JUDGED_ROW,
    MODELS,
    TEACHER,
    format_gain,
    has_deployed_rule,
    read_results,
)

RETRIEVER = "mini-colqwen"
BACKBONES = ("mini-qwen", "mini-glm")
OWN_RECOVERY = "recovery of its own cross encoder, %"
TABLE_4 = "[table 4](../results/miniature/reproduce/table4.md), `make reproduce`"


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
                f"{judged['speedup']:.1f}x [{judged['speedup from']:.1f}, {judged['speedup to']:.1f}]",
            ]
        )
    header = ["backbone", "retriever", "full cross encoder, fused", "RidgeRank, judged weight", "recovery"]
    return format_table([*header, "RidgeRank, no judgements", "recovery", "faster"], rows)


def readme_real_documents() -> str:
    """The folder of real PDFs that nothing was chosen on."""
    rows = []
    for model, name in MODELS.items():
        measured = read_results("second", model)
        if measured is None:
            continue
        quality = {row: f"{cells['nDCG@5']:.1f}" for row, cells in measured["table"].items()}
        cells = [name, str(measured["questions"]), quality["bm25"], quality[TEACHER], quality[CROSS_ENCODER]]
        ours = [f"{quality[row]} ({format_gain(measured, row)})" for row in (JUDGED_ROW, DEPLOYED)]
        rows.append([*cells, *ours])
    header = ["model", "questions", "BM25", "every page at full depth, fused", "trained cross encoder, fused"]
    return format_table([*header, "RidgeRank, judged weight", "RidgeRank, no judgements"], rows)


def evidence_table() -> str:
    """What was measured, by which definition, what it proves and what it does not."""
    header = ["what", "measured", "on what", "definition", "check it", "it does not prove"]
    rows = [_ranking_row(), _blind_row(), weight_row(), *_real_rows(), _abstention_row()]
    rows += [_claims_row(), _speed_row(), *_shape_rows()]
    return format_table(header, rows)


def speed_table() -> str:
    """Speed against what one would use instead."""
    rows = _pass_rows()
    reads = read_result("store_read")["presets"]
    load = read_result("serving_load")
    for what, against, measured, file in (
        *(
            (
                f"reading 20 random prefixes of {read['page_nbytes'] / 1e6:.1f} MB, preset `{preset}`",
                "a plain copy from mapped memory",
                f"{read['ratio_to_mmap_copy']['ours']:.2f} of its speed",
                "store_read",
            )
            for preset, read in reads.items()
        ),
        (
            "reading 20 random prefixes from the disk, preset `small`",
            "the same, preset `paper`",
            f"{reads['small']['cold_ms'] / reads['paper']['cold_ms']:.2f} of its time",
            "store_read",
        ),
        (
            "indexing 2,000 pages",
            "memory above the loaded model",
            f"{read_result('index_memory')['peak_above_model_mib']} MiB",
            "index_memory",
        ),
        (
            "reading out, fusing and sorting 20 candidates",
            "the whole request",
            f"{100 * read_result('rank_overhead')['share_of_request']:.2f} % of its time",
            "rank_overhead",
        ),
        (
            "indexing 300 pages and calibrating with 32 queries on the way",
            "indexing alone",
            f"{read_result('one_pass')['time_over_index_alone']:.2f}x its time",
            "one_pass",
        ),
        (
            "eight callers of `ridgerank serve`",
            "one caller's throughput",
            f"{load['throughput_eight_over_one']}x",
            "serving_load",
        ),
        (
            "ten times the callers it admits",
            "p99 of those admitted, at capacity",
            f"{load['p99_ten_times_over_capacity']}x it",
            "serving_load",
        ),
        (
            "fusing 10,000 queries × 100 pages",
            "ranx, compiled",
            f"{read_result('fusion_speed')['time_over_ranx_compiled']}x its time",
            "fusion_speed",
        ),
    ):
        rows.append([what, against, measured, _file(file)])
    return format_table(["what", "against", "result", "file"], rows)


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


def _ranking_row() -> list[str]:
    costs = _costs()
    scores = " and ".join(
        f"{row['nDCG@5']:.1f} ({row[OWN_RECOVERY]:.1f} % of the gain of "
        f"{_cross_encoder(backbone)['nDCG@5']:.1f})"
        for backbone in BACKBONES
        for row in [costs[f"RidgeRank ({backbone})"]]
    )
    return [
        "ranks nearly as the full model",
        f"nDCG@5 {scores}; retriever {costs['No reranking']['nDCG@5']:.1f}",
        "400 questions on four drawn corpora, of pairs and topics that no model was trained on",
        "the paper's: readout fitted on three corpora, weight w* read with judgements of the next one, "
        "reference the backbone's own full cross encoder fused at its own weight",
        TABLE_4,
        "anything about large models or real pages: these are some thirty words on a grid, read by models we "
        "trained",
    ]


def _blind_row() -> list[str]:
    shown = " and ".join(
        f"{row['nDCG@5']:.1f} ({row[OWN_RECOVERY]:.1f} %)"
        for backbone in BACKBONES
        for row in [_costs()[f"RidgeRank ({backbone}), label-free weight"]]
    )
    return [
        "the same without any judgement",
        f"nDCG@5 {shown}",
        "the same questions",
        "the paper's §B.6, read on the corpus' own queries",
        TABLE_4,
        "that §B.6 does as well elsewhere: on real documents it is too large, and another rule is deployed",
    ]


def _real_rows() -> list[list[str]]:
    rows = []
    proof = {
        "second": "that it holds for image models; the interval is what the documents allow; the rule for "
        "the weight without judgements was made with SmolLM2's scores in view",
        "first": "anything by itself: reading, positions and weight were chosen with these questions in view",
    }
    for folder, label in FOLDERS.items():
        for model, name in MODELS.items():
            measured = read_results(folder, model)
            if measured is None:
                continue
            quality = {row: f"{cells['nDCG@5']:.1f}" for row, cells in measured["table"].items()}
            ours = "; ".join(
                f"{words} {quality[row]} ({format_gain(measured, row)}"
                + (
                    f", {format_recovery(measured['recovery'][row])} of the teacher's gain"
                    if measured.get("recovery")
                    else ""
                )
                + ")"
                for row, words in ((JUDGED_ROW, "judged weight"), (DEPLOYED, "no judgements"))
                if row == JUDGED_ROW or has_deployed_rule(measured)
            )
            rows.append(
                [
                    f"real PDFs, {name}, {label}",
                    f"BM25 {quality['bm25']}, fused teacher {quality[TEACHER]}; {ours}",
                    f"{measured['questions']} questions of MMLongBench-Doc, page text and OCR",
                    "leave one kind of document out; our deployed rule, not the paper's: query likelihood, "
                    "mean state, a weight pulled towards 0.5, gate to 0. Intervals draw documents",
                    "[real documents](real-documents.md), `python -m benchmarks.real_documents`",
                    proof[folder],
                ]
            )
    return rows


def _gain_and_recovery(measured: dict[str, Any], row: str) -> str:
    gain = format_gain(measured, row)
    if row not in measured.get("recovery", {}):
        return gain
    return f"{gain}, {format_recovery(measured['recovery'][row])} of the teacher's gain"


def _abstention_row() -> list[str]:
    rows = select_rows(corpora=REPORTED, fitted_to=JUDGED, answering=ANY)
    errors = [row["ece"] for row in rows]
    told = {score: [row["auroc"] for row in rows if row["score"] == score] for score in SCORES}
    shown = "; ".join(f"{score} {min(values):.2f} to {max(values):.2f}" for score, values in told.items())
    return [
        "a probability that holds across queries, and says when nothing answers",
        f"calibration error of a page's {min(errors):.3f} to {max(errors):.3f}; AUROC of an answer {shown}",
        "eight drawn corpora, two backbones, two retrievers",
        "fitted on the other eleven corpora, features chosen on the first four; ten bins of equal width; "
        "unanswered queries are made by taking relevant pages out of the list",
        f"{_file('abstention')}, `python -m benchmarks.abstention`, [scores](scores.md)",
        "that it holds for pages and queries unlike the judged ones; where partly relevant pages stay in the "
        "list, fewer are told",
    ]


def _claims_row() -> list[str]:
    claims = read_result("miniature/reproduce/directions")
    held = sum(claim["holds"] for claim in claims)
    return [
        "the paper's claims",
        f"{held} of {len(claims)} hold on the miniature",
        "twelve drawn corpora, two backbones, two retrievers",
        "every claim of the text with the paper's own threshold, those that fail included",
        "[directions.json](../results/miniature/reproduce/directions.json), [reproduce](reproduce.md)",
        "the paper's figures: its models and data sets were not run here",
    ]


def _speed_row() -> list[str]:
    shown = " and ".join(
        f"{row['speedup']:.1f}x [{row['speedup from']:.1f}, {row['speedup to']:.1f}]"
        for backbone in BACKBONES
        for row in [_costs()[f"RidgeRank ({backbone})"]]
    )
    return [
        "faster than the full cross encoder",
        shown,
        "the same corpora, one core, one thread",
        "the paper's: mean latency, retrieval included, over the cross encoder's",
        TABLE_4,
        "the speed on a GPU, where weights are read faster and prefixes must be copied",
    ]


def _shape_rows() -> list[list[str]]:
    return [
        [
            f"the pass itself, {shape['shape']}",
            _compare_pass(shape),
            f"a random Qwen2.5-VL of 119 million weights, {shape['visual_positions']:,} visual "
            f"positions, {shape['suffix']} tokens behind the page",
            "20 full passes of the library's own forward over one shallow pass, prefixes in memory",
            "[shallow_speed](../results/shallow_speed.json), `python -m benchmarks.shallow_speed`",
            "ranking quality, or the time to read prefixes from a disk",
        ]
        for shape in read_result("shallow_speed")["shapes"]
    ]


def _pass_rows() -> list[list[str]]:
    """The pass over pages of both presets, at every shape."""
    rows = []
    for shape in read_result("shallow_speed")["shapes"]:
        what = (
            f"a query over 20 stored pages, exit layer 21 of 28; {shape['visual_positions']:,} visual "
            f"positions, {shape['suffix']} tokens behind the page"
        )
        rows.append([what, "20 full passes of the same model", _compare_pass(shape), _file("shallow_speed")])
        small = shape["small_preset"]
        result = f"{small['time_ratio']} of its time, fastest runs {small['time_ratio_of_fastest']}"
        what = f"the same over pages of the preset `small`, {small['kept']} positions of {small['bits']} bits"
        rows.append([what, f"`paper`: {shape['kept']} positions in int8", result, _file("shallow_speed")])
    return rows


def _compare_pass(shape: dict[str, Any]) -> str:
    """How much faster than full passes, by medians and by fastest runs, and what operations allow."""
    paper = next(each for each in shape["by_join_layer"] if each["join_layer"] == 0)
    return (
        f"{paper['ratio']}x faster, fastest runs {paper['ratio_of_fastest']}x; operations allow "
        f"{paper['operations_allow']}x"
    )


def _file(name: str) -> str:
    return f"[{name}](../results/{name}.json)"


SUMMARY_TABLES: TableMakers = {
    "readme": readme_table,
    "readme real documents": readme_real_documents,
    "evidence": evidence_table,
    "speed": speed_table,
}
