"""The tables of docs/scores.md, from the files of results/ that are named abstention."""

from typing import Any

from benchmarks.markdown_tables import TableMakers, format_table, read_result

JUDGED, NONE = "judgements of other corpora", "none"
REFILLED = f"{JUDGED}, refilled"
REPORTED = "miniature 2"
SCORES = ("full model's margin", "readout")
ANY, FULLY = "relevant at all", "answers"


def select_rows(**values: str) -> list[dict[str, Any]]:
    """The rows of the measurement that have these values."""
    rows: list[dict[str, Any]] = read_result("abstention")["rows"]
    return [row for row in rows if all(row[name] == value for name, value in values.items())]


def abstention_table() -> str:
    """Every backbone, retriever and score on the corpora that nothing was chosen on."""
    rows = []
    for judged in select_rows(corpora=REPORTED, fitted_to=JUDGED, answering=ANY):
        same = {name: judged[name] for name in ("backbone", "retriever", "score", "corpora")}
        [unfitted] = select_rows(**same, fitted_to=NONE, answering=ANY)
        [fully] = select_rows(**same, fitted_to=JUDGED, answering=FULLY)
        rows.append(
            [
                judged["backbone"],
                judged["retriever"],
                judged["score"],
                f"{judged['ece']:.3f} ({judged['ece_worst_corpus']:.3f})",
                f"{unfitted['ece']:.3f}",
                f"{judged['auroc']:.3f} ({judged['auroc_worst_corpus']:.3f})",
                f"{fully['auroc']:.3f} ({fully['auroc_worst_corpus']:.3f})",
                f"{unfitted['auroc']:.3f}",
            ]
        )
    header = ["backbone", "retriever", "score", "ECE (worst corpus)", "ECE without judgements"]
    header += ["AUROC, no relevant page left (worst)", "AUROC, partly relevant pages left (worst)"]
    return format_table([*header, "AUROC without judgements"], rows)


def min_score_table() -> str:
    """What `--min-score` leaves empty, of lists with an answer and of lists without."""
    rows = [
        [
            row["backbone"],
            row["retriever"],
            row["score"],
            {JUDGED: "other corpora", NONE: "none"}[row["fitted_to"]],
            f"{100 * row['empty_unanswered']:.1f} %",
            f"{100 * row['empty_unanswered_by_pages_alone']:.1f} %",
            f"{100 * row['empty_answered']:.1f} %",
        ]
        for row in select_rows(corpora=REPORTED, answering=ANY, score=SCORES[1])
    ]
    header = ["backbone", "retriever", "score", "judgements", "empty, no relevant page"]
    return format_table([*header, "the same by pages alone", "empty, relevant pages"], rows)


def refilled_table() -> str:
    """The stand-in, a list that is shorter, against a list that is filled up."""
    rows = []
    for refilled in select_rows(fitted_to=REFILLED):
        same = {name: refilled[name] for name in ("backbone", "retriever", "score", "corpora", "answering")}
        [shorter] = select_rows(**same, fitted_to=JUDGED)
        left = {ANY: "no relevant page", FULLY: "partly relevant pages"}[refilled["answering"]]
        rows.append([refilled["backbone"], left, f"{shorter['auroc']:.3f}", f"{refilled['auroc']:.3f}"])
    return format_table(
        ["backbone", "left in the list", "AUROC, shorter list", "AUROC, filled up to 20"], rows
    )


def features_table() -> str:
    """Feature sets by their log loss."""
    losses: dict[str, float] = read_result("abstention_features")["log_loss"]
    rows = [[*features.split(": "), f"{loss:.3f}"] for features, loss in losses.items()]
    return format_table(["probability of", "features", "log loss"], rows)


def few_table() -> str:
    """Calibration error by the number of judged queries."""
    rows = [
        [
            row["backbone"],
            str(row["judged_queries"] or "none"),
            f"{row['ece']:.3f} ({row['ece_90_percent']:.3f})",
            f"{row['ece_answered']:.3f}",
            f"{row['auroc']:.3f}",
        ]
        for row in read_result("abstention_few")["rows"]
    ]
    header = ["backbone", "judged queries", "ECE of a page (nine of ten draws up to)", "ECE of an answer"]
    return format_table([*header, "AUROC"], rows)


ABSTENTION_TABLES: TableMakers = {
    "abstention": abstention_table,
    "abstention min score": min_score_table,
    "abstention refilled": refilled_table,
    "abstention features": features_table,
    "abstention few": few_table,
}
