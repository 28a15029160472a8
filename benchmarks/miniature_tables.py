"""The tables of docs/miniature.md: what the shipped models do on the first four corpora."""

from collections.abc import Sequence
from typing import Any

from benchmarks.markdown_tables import TableMakers, format_table, read_result

ARMS = {
    "retriever": "retriever alone",
    "logit lens": "logit lens",
    "readout": "readout alone",
    "ridgerank": "RidgeRank",
    "ridgerank, label free": "label free",
    "cross encoder": "cross encoder",
    "cross encoder, fused": "cross encoder, fused",
}
"""Arm of `benchmarks.miniature` → the head of its column."""
KEPT_ARMS = ("readout", "ridgerank", "ridgerank, label free", "cross encoder, fused")
RECOVERIES = ["recovery", "recovery, label free"]


def models_table() -> str:
    """Each backbone behind each retriever."""
    rows = [
        [pair["backbone"], pair["retriever"], *_figures(pair, tuple(ARMS))]
        for pair in read_result("miniature/models")["pairs"]
    ]
    return format_table(["backbone", "retriever", *ARMS.values(), *RECOVERIES], rows)


def kept_table() -> str:
    """`mini-qwen` behind `mini-colqwen`, by the rule that keeps a third of the positions."""
    rows = []
    for name in ("models", "keep-ink", "keep-spread"):
        measured = read_result(f"miniature/{name}")
        rows.append([measured["keep"], *_figures(measured["pairs"][0], KEPT_ARMS)])
    return format_table(["kept", *(ARMS[arm] for arm in KEPT_ARMS), *RECOVERIES], rows)


def label_free_table() -> str:
    """The weight with judgements and the one without, and what the difference costs."""
    rows = [
        [
            corpus,
            f"{figures['weight']:.2f}",
            f"{figures['label-free weight']:.2f}",
            f"{figures['ridgerank, label free'] - figures['ridgerank']:+.1f}",
        ]
        for corpus, figures in read_result("miniature/models")["pairs"][0]["by_corpus"].items()
    ]
    return format_table(["corpus", "judged weight", "label-free weight", "nDCG@5 by it"], rows)


def _figures(pair: dict[str, Any], arms: Sequence[str]) -> list[str]:
    recoveries = (pair["recovery_percent"], pair["recovery_label_free_percent"])
    return [*(f"{pair['ndcg_at_5'][arm]:.1f}" for arm in arms), *(f"{each:.1f} %" for each in recoveries)]


MINIATURE_TABLES: TableMakers = {
    "miniature models": models_table,
    "miniature kept": kept_table,
    "miniature label free": label_free_table,
}
