"""From checkpoints of questions to the tables of `real_documents`: fits, weights, NDCG@5, intervals.

One kind of document is left out at a time. What `ridgerank calibrate` does is done on the questions of all
other kinds together (`calibration/selection.py`: readout, penalty, weight), and the kind left out is ranked
with it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ridgerank.calibration.fusion_weight import SHRINK_BELOW, weigh
from ridgerank.calibration.selection import Observed, choose
from ridgerank.evaluation.metrics import evaluate
from ridgerank.fusion.correlations import correlate, correlation
from ridgerank.fusion.estimate import closed_form_estimate
from ridgerank.fusion.prior import Prior
from ridgerank.fusion.standardize import fuse
from ridgerank.ragged import Floats, Ragged
from ridgerank.records import STATES, TARGETS, State, Target
from ridgerank.runs.run import Qrels, Run

MEASURE = "nDCG@5"
JUDGED, LABEL_FREE, PAPER_LABEL_FREE = WAYS = ("closed form", "label-free", "label-free of one reading")
"""Where a weight comes from: judgements of the other kinds; scores alone, all readings together, as deployed;
the same of each reading by itself (§B.6)."""
_RESAMPLES = 2000


@dataclass(frozen=True, slots=True)
class Asked:
    """All questions laid end to end."""

    queries: list[str]
    kinds: np.ndarray
    """(questions,)."""
    lists: Ragged
    references: list[str]
    columns: dict[str, np.ndarray]
    """Scores (candidates,) and states (candidates, dim) by name."""
    per_question: dict[str, Floats]
    """Seconds and bytes (questions,) by name."""
    relevance: Floats

    def kinds_in_order(self) -> list[str]:
        """Each kind once."""
        return list(dict.fromkeys(self.kinds.tolist()))

    def states(self, keep: str) -> dict[State, Floats]:
        """The states over pages kept so, by where they were read."""
        return {state: self.columns[f"{keep}, {state}"] for state in STATES}

    def observed(self, kind: str, keep: str, *, judged: bool) -> Observed:
        """The questions of all kinds but one, as calibration sees them."""
        rest, members = self.lists.select(self.kinds != kind)
        targets: dict[Target, Floats] = {target: self.columns[target][members] for target in TARGETS}
        return Observed(
            lists=rest,
            corpora=tuple(self.kinds[self.kinds != kind].tolist()),
            retriever=self.columns["bm25"][members],
            targets=targets,
            states={state: states[members] for state, states in self.states(keep).items()},
            relevance=self.relevance[members] if judged else None,
        )


@dataclass(slots=True)
class Readouts:
    """Scores of every question by readouts and weights of other kinds, for one way of keeping pages."""

    scores: dict[str, Floats] = field(default_factory=dict)
    fused: dict[str, Floats] = field(default_factory=dict)
    weights: dict[str, dict[str, float]] = field(default_factory=dict)
    penalties: dict[str, dict[str, float]] = field(default_factory=dict)
    taken: dict[str, str] = field(default_factory=dict)
    """Kind left out → the reading that calibration takes by itself, without judgements."""
    reasons: dict[str, str] = field(default_factory=dict)


def report(
    kinds: Mapping[str, str],
    qrels: Qrels,
    folder: Path,
    *,
    keeps: Sequence[str],
    evidence_without_text: Mapping[str, float],
) -> dict[str, Any]:
    """Evaluate what is on disk; print tables, return everything for the JSON line."""
    asked = load(kinds, qrels, folder)
    judged = {query: qrels[query] for query in asked.queries if query in qrels}
    rows: dict[str, Floats] = {"bm25": _ndcg(asked, asked.columns["bm25"], judged)}
    weights: dict[str, Any] = {}
    facts: dict[str, Any] = {}
    taken: dict[str, Any] = {}
    others: dict[str, Floats] = {f"teacher: {target}": asked.columns[target] for target in TARGETS}
    if "cross" in asked.columns:
        others["cross encoder"] = asked.columns["cross"]
    for name, scores in others.items():
        rows[name] = _ndcg(asked, scores, judged)
        fused, used = _fused_by_judgements(asked, scores)
        rows[f"{name}, closed form"] = _ndcg(asked, fused, judged)
        weights[name] = used
        rows[f"{name}, best weight seen afterwards"], best = _best(asked, scores, judged)
        weights[f"{name}, seen afterwards"] = best
    for keep in keeps:
        found = readouts(asked, keep)
        for name, scores in found.scores.items():
            target = next((own for own in TARGETS if name.startswith(own)), None)
            rows[f"{keep}, {name}"] = _ndcg(asked, scores, judged)
            facts[f"{keep}, {name}"] = {"penalty": found.penalties[name]}
            if target is not None:
                r = correlation(scores, asked.columns[target], asked.lists)
                facts[f"{keep}, {name}"] |= {"held_out_r": round(float(r.mean()), 3)}
        for name, scores in found.fused.items():
            rows[f"{keep}, {name}"] = _ndcg(asked, scores, judged)
            weights[f"{keep}, {name}"] = found.weights[name]
        taken[keep] = {"readings": found.taken, "reasons": found.reasons}
    table = {name: _summary(values, rows["bm25"]) for name, values in rows.items()}
    for name, row in table.items():
        low, high = row["gain_interval"]
        print(f"{name:64} {row[MEASURE]:6.1f}   gain {row['gain']:+5.1f} [{low:+.1f}, {high:+.1f}]")
    return {
        "questions": len(asked.queries),
        "questions_by_kind": {kind: int((asked.kinds == kind).sum()) for kind in asked.kinds_in_order()},
        "table": table,
        "recovery": _recovery(table, rows),
        "by_kind": _by_kind(asked, rows),
        "weights": weights,
        "readouts": facts,
        "taken": taken,
        "correlations": _correlations(asked),
        "bytes_a_page": {keep: round(float(asked.per_question[f"{keep}, bytes"].mean())) for keep in keeps},
        "evidence_without_text": {name: round(share, 3) for name, share in evidence_without_text.items()},
    }


def readouts(asked: Asked, keep: str) -> Readouts:
    """What calibrating on the other kinds gives a kind: every reading, and the one taken by measure."""
    found = Readouts()
    count = asked.lists.members
    for kind in asked.kinds_in_order():
        own, members = asked.lists.select(asked.kinds == kind)
        b = asked.columns["bm25"][members]
        judged = choose(asked.observed(kind, keep, judged=True))
        choice = choose(asked.observed(kind, keep, judged=False))
        found.taken[kind], found.reasons[kind] = choice.taken.reading.name, choice.reason
        for attempt, with_judgements in zip(choice.attempts, judged.attempts, strict=True):
            weights = {
                JUDGED: with_judgements.weighing.deployed.weight,
                LABEL_FREE: attempt.weighing.deployed.weight,
                PAPER_LABEL_FREE: weigh(attempt.lessons, attempt.fitted, None).deployed.weight,
            }
            scores = asked.states(keep)[attempt.reading.state][members] @ attempt.fitted.vector
            for name in (attempt.reading.name, *(["taken by measure"] if attempt is choice.taken else [])):
                found.scores.setdefault(name, np.zeros(count))[members] = scores
                found.penalties.setdefault(name, {})[kind] = attempt.fitted.choice.deployed
                for way, weight in weights.items():
                    fused = found.fused.setdefault(f"{name}, {way}", np.zeros(count))
                    fused[members] = fuse(b, scores, weight, own)
                    found.weights.setdefault(f"{name}, {way}", {})[kind] = round(weight, 3)
    return found


def load(kinds: Mapping[str, str], qrels: Qrels, folder: Path) -> Asked:
    """Everything on disk of these questions; what only some of them have is left out."""
    parts: dict[str, list[np.ndarray]] = {}
    per_question: dict[str, list[float]] = {}
    lengths, queries = [], []
    for query in kinds:
        data: dict[str, np.ndarray] = {}
        for path in sorted(folder.glob(f"{query}.*npz")):
            with np.load(path) as found:
                data |= dict(found)
        queries.append(query)
        lengths.append(len(data["references"]))
        for name, values in data.items():
            if values.ndim:
                parts.setdefault(name, []).append(values)
            else:
                per_question.setdefault(name, []).append(float(values))
    whole = {name: np.concatenate(own) for name, own in parts.items() if len(own) == len(queries)}
    references = whole.pop("references").tolist()
    columns = {name: np.asarray(values, dtype=np.float64) for name, values in whole.items()}
    lists = Ragged.of_lengths(lengths)
    owner = [queries[number] for number in lists.index()]
    relevance = np.array(
        [float(qrels.get(query, {}).get(page, 0) > 0) for query, page in zip(owner, references, strict=True)]
    )
    return Asked(
        queries=queries,
        kinds=np.array([kinds[query] for query in queries]),
        lists=lists,
        references=references,
        columns=columns,
        per_question={name: np.array(values) for name, values in per_question.items()},
        relevance=relevance,
    )


def _ndcg(asked: Asked, scores: Floats, qrels: Qrels) -> Floats:
    owner = [asked.queries[number] for number in asked.lists.index()]
    # Equal scores keep the retriever's order: what no score tells apart is not shuffled.
    run = Run.of_columns(owner, asked.references, list(-asked.lists.ranks(scores).astype(float)))
    return evaluate(run, qrels, (MEASURE,)).of(MEASURE)


def _best(asked: Asked, scores: Floats, qrels: Qrels) -> tuple[Floats, float]:
    """The best of twenty weights for these very questions: a ceiling, not a result."""
    bm25 = asked.columns["bm25"]
    tried = {
        round(float(w), 2): _ndcg(asked, fuse(bm25, scores, float(w), asked.lists), qrels)
        for w in np.arange(0.05, 1.0, 0.05)
    }
    best = max(tried, key=lambda weight: tried[weight].mean())
    return tried[best], best


def _fused_by_judgements(asked: Asked, scores: Floats) -> tuple[Floats, dict[str, float]]:
    """Fuse each kind at w* (eq. 4) of all other kinds together."""
    fused = np.zeros(len(scores))
    weights = {}
    bm25 = asked.columns["bm25"]
    for kind in asked.kinds_in_order():
        rest, members = asked.lists.select(asked.kinds != kind)
        judged = correlate(bm25[members], scores[members], asked.relevance[members], rest)
        prior = Prior() if judged.queries < SHRINK_BELOW else None
        weights[kind] = round(closed_form_estimate(judged, prior=prior).weight, 3)
        own, members = asked.lists.select(asked.kinds == kind)
        fused[members] = fuse(bm25[members], scores[members], weights[kind], own)
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
    found: dict[str, Any] = {}
    for name, values in rows.items():
        target = next((own for own in TARGETS if f", {own}, " in name), None)
        if "taken by measure" in name:
            target = "likelihood"
        if target is None or not name.endswith(WAYS):
            continue
        gain = table[f"teacher: {target}, closed form"]["gain"]
        drawn = _resampled(values - base) - 0.7 * _resampled(teachers[target])
        found[name] = {
            "recovery": round(table[name]["gain"] / gain, 3) if gain > 0 else None,
            "resamples_above_70_percent": round(float((drawn > 0).mean()), 3),
        }
    return found


def _by_kind(asked: Asked, rows: Mapping[str, Floats]) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    for kind in asked.kinds_in_order():
        own = asked.kinds == kind
        shown[kind] = {"questions": int(own.sum())} | {
            name: _summary(values[own], rows["bm25"][own])
            for name, values in rows.items()
            if "afterwards" not in name
        }
    return shown


def _correlations(asked: Asked) -> dict[str, Any]:
    """c_b, and each score's correlation with relevance and with the retriever: what fusion lives on."""
    found = {}
    for name in (*TARGETS, "cross"):
        if name in asked.columns:
            seen = correlate(asked.columns["bm25"], asked.columns[name], asked.relevance, asked.lists)
            c_b, c_s, rho = seen.stacked().mean(axis=0).tolist()
            found[name] = {"c_b": round(c_b, 3), "c_s": round(c_s, 3), "rho": round(rho, 3)}
    return found
