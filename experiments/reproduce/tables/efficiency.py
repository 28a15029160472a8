"""Table 4: accuracy against cost, first family."""

import numpy as np

from experiments.protocols import recovery
from experiments.reproduce import paper
from experiments.reproduce.analysis import Analysis
from experiments.reproduce.method_results import RESAMPLES, MethodLatency, MethodResult, interval_95
from experiments.reproduce.studies.weight_rules import compare_weight_rules
from experiments.reproduce.tables.table import Cell, Column, Row, Table, text_columns


def table4(analysis: Analysis) -> Table:
    """Recovery of the cross encoder's gain, mean latency, speedup over the cross encoder."""
    settings = analysis.settings
    rows = [row for retriever in settings.retrievers for row in _rows_behind(analysis, retriever)]
    reference = analysis.result(0, settings.retrievers[0], "cross encoder").latency
    assert reference is not None
    queries = sum(len(corpus.queries) for corpus in settings.families[0].corpora)
    return Table(
        "table4",
        f"Table 4. Accuracy and cost on {settings.families[0].name}",
        "Recovery is the share of the full cross encoder's gain over the retriever that a method keeps: of "
        f"{settings.backbones[0]}'s, the paper's single reference, and beside it of the backbone's own; "
        "latency is a mean over queries, retrieval included; speedup is against the full cross encoder.",
        (
            *text_columns("retriever", "method"),
            Column("nDCG@5"),
            Column("recovery, %"),
            Column("latency, ms", ",.1f"),
            Column("speedup", ",.1f"),
            Column("recovery of its own cross encoder, %"),
            Column("latency from", ",.1f"),
            Column("latency to", ",.1f"),
            Column("speedup from", ",.1f"),
            Column("speedup to", ",.1f"),
            Column("queries timed", "d"),
        ),
        tuple(rows),
        (
            f"full passes over all images were timed on {len(reference.samples_ms)} of {queries} queries; "
            f"intervals are 95 %, from the timed queries drawn again ({RESAMPLES} times)",
            "judged weight: w* read with the judgements of the next corpus, as deployed in the paper; "
            "label-free weight: the one-factor model of the paper's §B.6, read on the corpus' own queries "
            f"without any judgement, with {settings.backbones[0]}'s full-depth margin as the third score",
            "every cross encoder is fused with the retriever at its own w*; only the first was timed",
            "times hold for the machine this ran on, and for what else ran there: the first backbone and "
            "full passes took turns, other rows were measured at other times",
            "an arm that stands in for a published one has its own cost, not that one's",
            *(method.remark for method in analysis.results(0, settings.retrievers[0]) if method.remark),
        ),
    )


def _rows_behind(analysis: Analysis, retriever: str) -> list[Row]:
    base = analysis.result(0, retriever, "retriever").macro()
    reference = analysis.result(0, retriever, "cross encoder")
    assert reference.latency is not None
    rows: list[Row] = []
    for method in analysis.results(0, retriever):
        if not method.by_corpus or method.latency is None:
            rows.append(Row((retriever, method.name, *[None] * 10), note=method.why))
            continue
        timing = _timing(analysis, method.latency, reference.latency)
        share = None if method.key == "retriever" else recovery(base, method.macro(), reference.macro())
        backbone = method.key.removeprefix("ours ") if method.key.startswith("ours ") else None
        quality = method.macro()
        if backbone is None:
            rows.append(_row((retriever, method.name), quality, share, None, timing))
            rows += _paper_row(retriever, method)
            continue
        whole = analysis.full_depth(0, retriever, backbone)
        if whole is not reference:
            share_of_whole = recovery(base, whole.macro(), reference.macro())
            rows.append(_row((retriever, whole.name), whole.macro(), share_of_whole, 100.0, (None,) * 7))
        blind = compare_weight_rules(analysis, 0, retriever, backbone).label_free
        for name, value in ((method.name, quality), (f"{method.name}, label-free weight", blind)):
            shares = [recovery(base, value, each.macro()) for each in (reference, whole)]
            rows.append(_row((retriever, name), value, shares[0], shares[1], timing))
            rows += _paper_row(retriever, method) if name == method.name else []
    return rows


def _row(
    names: tuple[str, str],
    quality: float,
    share: float | None,
    own_share: float | None,
    timing: tuple[Cell, ...],
) -> Row:
    latency, speedup, *intervals = timing
    return Row((*names, quality, share, latency, speedup, own_share, *intervals))


def _timing(analysis: Analysis, latency: MethodLatency, reference: MethodLatency) -> tuple[Cell, ...]:
    """Latency, speedup, both intervals, and how many queries were timed."""
    seed = analysis.settings.seed
    redrawn = latency.redraw(seed)
    # The reference is drawn with another seed, so that its queries are drawn independently.
    ratios = np.ones(1) if latency is reference else reference.redraw(seed + 1) / redrawn
    intervals = (*interval_95(redrawn), *interval_95(ratios))
    return (latency.total_ms, reference.total_ms / latency.total_ms, *intervals, len(latency.samples_ms))


def _paper_row(retriever: str, method: MethodResult) -> list[Row]:
    published = paper.look_up("table4", paper.model_name(retriever), paper.row_key(method.key))
    if published is None:
        return []
    figures = tuple(published[key] for key in ("NDCG@5", "recovery", "latency_ms", "speedup"))
    names = (paper.model_name(retriever), paper.row_label(method.key))
    return [Row((*names, *figures, *[None] * 6), source=paper.SOURCE)]
