"""From questions that were run to the tables of `real_documents`: nDCG@5, gains, recovery, intervals."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.real_documents_checkpoints import QuestionTable
from benchmarks.real_documents_resample import (
    BASE,
    MEASURE,
    OTHER_FOLDER,
    QuestionQualities,
    print_summary,
    round_qualities,
    summarize,
    summarize_recovery,
)
from benchmarks.real_documents_transfer import (
    JUDGED,
    TransferredReadouts,
    fuse_by_judgements,
    transfer_readouts,
)
from ridgerank.evaluation.metrics import evaluate
from ridgerank.fusion.correlations import correlate, correlation
from ridgerank.fusion.standardize import fuse_scores
from ridgerank.ragged import Floats
from ridgerank.records import TARGETS
from ridgerank.runs.run import Qrels, Run

_CROSS = "cross"


def report(
    questions: QuestionTable,
    qrels: Qrels,
    *,
    keeps: Sequence[str],
    other_folder: QuestionTable | None = None,
) -> tuple[QuestionQualities, dict[str, Any]]:
    """Evaluate these questions; print a table; return every question's quality, and all for the JSON line.

    With the questions of an `other_folder`, rows that it alone has taught follow.
    """
    judged = {query: qrels[query] for query in questions.queries if query in qrels}
    rows: dict[str, Floats] = {BASE: question_ndcg(questions, questions.columns["bm25"], judged)}
    details: dict[str, dict[str, Any]] = {"weights": {}, "readouts": {}, "taken": {}}
    for name, column in _full_models(questions).items():
        scores = questions.columns[column]
        rows[name] = question_ndcg(questions, scores, judged)
        rows[f"{name}, best weight seen afterwards"], best = _best(questions, scores, judged)
        details["weights"][f"{name}, seen afterwards"] = best
    _add_taught(rows, details, questions, judged, keeps, None)
    if other_folder is not None:
        _add_taught(rows, details, questions, judged, keeps, other_folder)
    qualities = QuestionQualities(
        queries=tuple(questions.queries),
        documents=tuple(questions.documents),
        kinds=tuple(questions.kinds.tolist()),
        qualities=round_qualities(rows),
    )
    print_summary(qualities)
    return qualities, {
        "questions": len(qualities.queries),
        "documents": len(set(qualities.documents)),
        "intervals": "95 %, whole documents drawn with replacement",
        "table": summarize(qualities),
        "recovery": summarize_recovery(qualities),
        "by_kind": _by_kind(qualities),
        **details,
        "correlations": _correlations(questions),
        "bytes_a_page": {
            keep: round(float(questions.per_question[f"{keep}, bytes"].mean())) for keep in keeps
        },
    }


def _full_models(questions: QuestionTable) -> dict[str, str]:
    """The models that read every candidate at full cost: name → column."""
    models = {f"teacher: {target}": str(target) for target in TARGETS}
    return models | ({"cross encoder": _CROSS} if _CROSS in questions.columns else {})


def _add_taught(
    rows: dict[str, Floats],
    details: dict[str, dict[str, Any]],
    questions: QuestionTable,
    judged: Qrels,
    keeps: Sequence[str],
    other_folder: QuestionTable | None,
) -> None:
    """Add the rows with weights and readouts that other kinds, or another folder, have taught."""
    prefix = "" if other_folder is None else OTHER_FOLDER
    for name, column in _full_models(questions).items():
        if other_folder is not None and column not in other_folder.columns:
            continue
        fused, weights = fuse_by_judgements(questions, column, other_folder)
        rows[f"{prefix}{name}, {JUDGED}"] = question_ndcg(questions, fused, judged)
        details["weights"][f"{prefix}{name}"] = weights
    for keep in keeps:
        if other_folder is not None and f"{keep}, bytes" not in other_folder.per_question:
            continue
        transferred = transfer_readouts(questions, keep, other_folder)
        for name, scores in (transferred.scores | transferred.fused).items():
            rows[f"{prefix}{keep}, {name}"] = question_ndcg(questions, scores, judged)
        for name, weights in transferred.weights.items():
            details["weights"][f"{prefix}{keep}, {name}"] = weights
        for name, facts in _readout_facts(questions, transferred).items():
            details["readouts"][f"{prefix}{keep}, {name}"] = facts
        details["taken"][f"{prefix}{keep}"] = {
            "readings": transferred.selected,
            "reasons": transferred.reasons,
        }


def _readout_facts(questions: QuestionTable, transferred: TransferredReadouts) -> dict[str, Any]:
    """The penalties of every readout, and how far it agrees with its target."""
    facts: dict[str, Any] = {}
    for name, scores in transferred.scores.items():
        facts[name] = {"penalty": transferred.penalties[name]}
        target = next((each for each in TARGETS if name.startswith(each)), None)
        if target is not None:
            r = correlation(scores, questions.columns[target], questions.lists)
            facts[name] |= {"held_out_r": round(float(r.mean()), 3)}
    return facts


def question_ndcg(questions: QuestionTable, scores: Floats, qrels: Qrels) -> Floats:
    """(questions,) nDCG@5 in percent when candidates are ordered by `scores`."""
    owner = [questions.queries[number] for number in questions.lists.list_numbers()]
    # Equal scores keep the retriever's order: what no score tells apart is not shuffled.
    run = Run.of_columns(owner, questions.references, list(-questions.lists.ranks(scores).astype(float)))
    return evaluate(run, qrels, (MEASURE,)).of(MEASURE)


def _best(questions: QuestionTable, scores: Floats, qrels: Qrels) -> tuple[Floats, float]:
    """The best of twenty weights for these very questions: a ceiling, not a result."""
    bm25 = questions.columns["bm25"]
    tried = {
        round(float(w), 2): question_ndcg(
            questions, fuse_scores(bm25, scores, float(w), questions.lists), qrels
        )
        for w in np.arange(0.05, 1.0, 0.05)
    }
    best = max(tried, key=lambda weight: tried[weight].mean())
    return tried[best], best


def _by_kind(qualities: QuestionQualities) -> Mapping[str, Any]:
    """Quality and gain by kind; a kind has too few documents for an interval."""
    shown: dict[str, Any] = {}
    for kind in dict.fromkeys(qualities.kinds):
        part = qualities.select(kind)
        base = part.qualities[BASE]
        shown[kind] = {"questions": len(part.queries), "documents": len(set(part.documents))} | {
            name: {
                MEASURE: round(float(values.mean()), 2),
                "gain": round(float((values - base).mean()), 2),
            }
            for name, values in part.qualities.items()
            if "afterwards" not in name
        }
    return shown


def _correlations(questions: QuestionTable) -> dict[str, Any]:
    """c_b, and each score's correlation with relevance and with the retriever."""
    means = {}
    for name in (*TARGETS, _CROSS):
        if name in questions.columns:
            by_query = correlate(
                questions.columns["bm25"], questions.columns[name], questions.relevance, questions.lists
            )
            c_b, c_s, rho = by_query.stacked().mean(axis=0).tolist()
            means[name] = {"c_b": round(c_b, 3), "c_s": round(c_s, 3), "rho": round(rho, 3)}
    return means
