"""From checkpoints of questions to the tables of `real_documents`: fits, weights, NDCG@5, intervals.

One kind of document is left out at a time. The questions of all other kinds together are calibrated on, as
`ridgerank calibrate` does (`calibration/selection.py`: readout, penalty, weight), and the result ranks the
kind that was left out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.real_documents_checkpoints import QuestionTable, load_questions
from ridgerank.calibration.fusion_weight import SHRINK_BELOW, decide_weight
from ridgerank.calibration.selection import select_readout
from ridgerank.evaluation.metrics import evaluate
from ridgerank.fusion.correlations import correlate, correlation
from ridgerank.fusion.estimate import closed_form_estimate
from ridgerank.fusion.prior import Prior
from ridgerank.fusion.standardize import fuse_scores
from ridgerank.ragged import Floats
from ridgerank.records import TARGETS
from ridgerank.runs.run import Qrels, Run

MEASURE = "nDCG@5"
JUDGED, LABEL_FREE, PAPER_LABEL_FREE = WAYS = ("closed form", "label-free", "label-free of one reading")
"""Where a weight comes from: judgements of the other kinds; scores alone, all readings together, as deployed;
the same of each reading by itself (§B.6)."""
_RESAMPLES = 2000


@dataclass(slots=True)
class TransferredReadouts:
    """Scores of every question by readouts and weights of other kinds, for one way of keeping pages."""

    scores: dict[str, Floats] = field(default_factory=dict)
    fused: dict[str, Floats] = field(default_factory=dict)
    weights: dict[str, dict[str, float]] = field(default_factory=dict)
    penalties: dict[str, dict[str, float]] = field(default_factory=dict)
    selected: dict[str, str] = field(default_factory=dict)
    """Kind left out → the reading that calibration selects without judgements."""
    reasons: dict[str, str] = field(default_factory=dict)


def report(
    kinds: Mapping[str, str],
    qrels: Qrels,
    folder: Path,
    *,
    keeps: Sequence[str],
    evidence_without_text: Mapping[str, float],
) -> dict[str, Any]:
    """Evaluate the checkpoints of these questions; print tables, return everything for the JSON line."""
    questions = load_questions(kinds, qrels, folder, keeps)
    judged = {query: qrels[query] for query in questions.queries if query in qrels}
    rows: dict[str, Floats] = {"bm25": _ndcg(questions, questions.columns["bm25"], judged)}
    weights: dict[str, Any] = {}
    facts: dict[str, Any] = {}
    selected: dict[str, Any] = {}
    others: dict[str, Floats] = {f"teacher: {target}": questions.columns[target] for target in TARGETS}
    if "cross" in questions.columns:
        others["cross encoder"] = questions.columns["cross"]
    for name, scores in others.items():
        rows[name] = _ndcg(questions, scores, judged)
        fused, by_kind = _fuse_by_judgements(questions, scores)
        rows[f"{name}, closed form"] = _ndcg(questions, fused, judged)
        weights[name] = by_kind
        rows[f"{name}, best weight seen afterwards"], best = _best(questions, scores, judged)
        weights[f"{name}, seen afterwards"] = best
    for keep in keeps:
        transferred = transfer_readouts(questions, keep)
        for name, scores in transferred.scores.items():
            target = next((each for each in TARGETS if name.startswith(each)), None)
            rows[f"{keep}, {name}"] = _ndcg(questions, scores, judged)
            facts[f"{keep}, {name}"] = {"penalty": transferred.penalties[name]}
            if target is not None:
                r = correlation(scores, questions.columns[target], questions.lists)
                facts[f"{keep}, {name}"] |= {"held_out_r": round(float(r.mean()), 3)}
        for name, scores in transferred.fused.items():
            rows[f"{keep}, {name}"] = _ndcg(questions, scores, judged)
            weights[f"{keep}, {name}"] = transferred.weights[name]
        selected[keep] = {"readings": transferred.selected, "reasons": transferred.reasons}
    table = {name: _summary(values, rows["bm25"]) for name, values in rows.items()}
    for name, row in table.items():
        low, high = row["gain_interval"]
        print(f"{name:64} {row[MEASURE]:6.1f}   gain {row['gain']:+5.1f} [{low:+.1f}, {high:+.1f}]")
    return {
        "questions": len(questions.queries),
        "questions_by_kind": {
            kind: int((questions.kinds == kind).sum()) for kind in questions.kinds_in_order()
        },
        "table": table,
        "recovery": _recovery(table, rows),
        "by_kind": _by_kind(questions, rows),
        "weights": weights,
        "readouts": facts,
        "taken": selected,
        "correlations": _correlations(questions),
        "bytes_a_page": {
            keep: round(float(questions.per_question[f"{keep}, bytes"].mean())) for keep in keeps
        },
        "evidence_without_text": {name: round(share, 3) for name, share in evidence_without_text.items()},
    }


def transfer_readouts(questions: QuestionTable, keep: str) -> TransferredReadouts:
    """Score each kind by readouts and weights of the other kinds: every reading, and the selected one."""
    transferred = TransferredReadouts()
    count = questions.lists.members
    for kind in questions.kinds_in_order():
        lists, members = questions.lists.select(questions.kinds == kind)
        b = questions.columns["bm25"][members]
        judged = select_readout(questions.observed(kind, keep, judged=True))
        selection = select_readout(questions.observed(kind, keep, judged=False))
        transferred.selected[kind], transferred.reasons[kind] = (
            selection.selected.option.name,
            selection.reason,
        )
        for fitted, with_judgements in zip(selection.fitted, judged.fitted, strict=True):
            weights = {
                JUDGED: with_judgements.decision.deployed.weight,
                LABEL_FREE: fitted.decision.deployed.weight,
                PAPER_LABEL_FREE: decide_weight(fitted.problem, fitted.fit, None).deployed.weight,
            }
            scores = questions.states(keep)[fitted.option.state][members] @ fitted.fit.vector
            for name in (fitted.option.name, *(["taken by measure"] if fitted is selection.selected else [])):
                transferred.scores.setdefault(name, np.zeros(count))[members] = scores
                transferred.penalties.setdefault(name, {})[kind] = fitted.fit.penalty.deployed
                for way, weight in weights.items():
                    fused = transferred.fused.setdefault(f"{name}, {way}", np.zeros(count))
                    fused[members] = fuse_scores(b, scores, weight, lists)
                    transferred.weights.setdefault(f"{name}, {way}", {})[kind] = round(weight, 3)
    return transferred


def _ndcg(questions: QuestionTable, scores: Floats, qrels: Qrels) -> Floats:
    owner = [questions.queries[number] for number in questions.lists.list_numbers()]
    # Equal scores keep the retriever's order: what no score tells apart is not shuffled.
    run = Run.of_columns(owner, questions.references, list(-questions.lists.ranks(scores).astype(float)))
    return evaluate(run, qrels, (MEASURE,)).of(MEASURE)


def _best(questions: QuestionTable, scores: Floats, qrels: Qrels) -> tuple[Floats, float]:
    """The best of twenty weights for these very questions: a ceiling, not a result."""
    bm25 = questions.columns["bm25"]
    tried = {
        round(float(w), 2): _ndcg(questions, fuse_scores(bm25, scores, float(w), questions.lists), qrels)
        for w in np.arange(0.05, 1.0, 0.05)
    }
    best = max(tried, key=lambda weight: tried[weight].mean())
    return tried[best], best


def _fuse_by_judgements(questions: QuestionTable, scores: Floats) -> tuple[Floats, dict[str, float]]:
    """Fuse each kind at w* (eq. 4) of all other kinds together."""
    fused = np.zeros(len(scores))
    weights = {}
    bm25 = questions.columns["bm25"]
    for kind in questions.kinds_in_order():
        others, members = questions.lists.select(questions.kinds != kind)
        judged = correlate(bm25[members], scores[members], questions.relevance[members], others)
        prior = Prior() if judged.queries < SHRINK_BELOW else None
        weights[kind] = round(closed_form_estimate(judged, prior=prior).weight, 3)
        lists, members = questions.lists.select(questions.kinds == kind)
        fused[members] = fuse_scores(bm25[members], scores[members], weights[kind], lists)
    return fused, weights


def _summary(values: Floats, base: Floats) -> dict[str, Any]:
    """Mean, and the gain over the retriever with a 95 % bootstrap interval over questions."""
    gains = values - base
    low, high = np.quantile(_resampled(gains), [0.025, 0.975])
    return {
        MEASURE: round(float(values.mean()), 2),
        "gain": round(float(gains.mean()), 2),
        "gain_interval": [round(float(low), 2), round(float(high), 2)],
    }


def _resampled(values: Floats) -> Floats:
    """Means over questions drawn with replacement, the same draws for all rows: (resamples,)."""
    generator = np.random.default_rng(0)
    drawn: Floats = values[generator.integers(len(values), size=(_RESAMPLES, len(values)))].mean(axis=1)
    return drawn


def _recovery(table: Mapping[str, Any], rows: Mapping[str, Floats]) -> dict[str, Any]:
    """Share of the fused teacher's gain that each fused readout keeps; in how many resamples above 70 %."""
    base = rows["bm25"]
    teachers = {target: rows[f"teacher: {target}, closed form"] - base for target in TARGETS}
    recovered: dict[str, Any] = {}
    for name, values in rows.items():
        target = next((each for each in TARGETS if f", {each}, " in name), None)
        if "taken by measure" in name:
            target = "likelihood"
        if target is None or not name.endswith(WAYS):
            continue
        gain = table[f"teacher: {target}, closed form"]["gain"]
        drawn = _resampled(values - base) - 0.7 * _resampled(teachers[target])
        recovered[name] = {
            "recovery": round(table[name]["gain"] / gain, 3) if gain > 0 else None,
            "resamples_above_70_percent": round(float((drawn > 0).mean()), 3),
        }
    return recovered


def _by_kind(questions: QuestionTable, rows: Mapping[str, Floats]) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    for kind in questions.kinds_in_order():
        of_kind = questions.kinds == kind
        shown[kind] = {"questions": int(of_kind.sum())} | {
            name: _summary(values[of_kind], rows["bm25"][of_kind])
            for name, values in rows.items()
            if "afterwards" not in name
        }
    return shown


def _correlations(questions: QuestionTable) -> dict[str, Any]:
    """c_b, and each score's correlation with relevance and with the retriever."""
    means = {}
    for name in (*TARGETS, "cross"):
        if name in questions.columns:
            by_query = correlate(
                questions.columns["bm25"], questions.columns[name], questions.relevance, questions.lists
            )
            c_b, c_s, rho = by_query.stacked().mean(axis=0).tolist()
            means[name] = {"c_b": round(c_b, 3), "c_s": round(c_s, 3), "rho": round(rho, 3)}
    return means
