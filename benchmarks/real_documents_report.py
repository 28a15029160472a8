"""From checkpoints of questions to the table of `real_documents`: fits, weights, NDCG@5, intervals."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from ridgerank.evaluation.metrics import evaluate
from ridgerank.fusion.correlations import correlate, correlation
from ridgerank.fusion.estimate import closed_form_estimate, label_free_estimate
from ridgerank.fusion.standardize import fuse
from ridgerank.lists import Floats, Lists
from ridgerank.readout.moments import CenteredMoments
from ridgerank.readout.penalty import choose_penalty, merged
from ridgerank.readout.ridge import ridge_path
from ridgerank.runs.run import Qrels, Run

TARGETS = ("likelihood", "margin")
MEASURE = "nDCG@5"
_RESAMPLES = 2000


@dataclass(frozen=True, slots=True)
class Asked:
    """All questions laid end to end."""

    queries: list[str]
    kinds: np.ndarray
    """(questions,)."""
    lists: Lists
    references: list[str]
    columns: dict[str, np.ndarray]
    """Scores (candidates,) and states (candidates, dim) by name."""
    per_question: dict[str, Floats]
    """Seconds and bytes (questions,) by name."""
    relevance: Floats


def report(
    kinds: Mapping[str, str],
    qrels: Qrels,
    folder: Path,
    *,
    settings: Sequence[str],
    evidence_without_text: Mapping[str, float],
) -> dict[str, Any]:
    """Evaluate what is on disk; print tables, return everything for the JSON line."""
    asked = _load(kinds, qrels, folder)
    judged = {query: qrels[query] for query in asked.queries if query in qrels}
    rows: dict[str, Floats] = {"bm25": _ndcg(asked, asked.columns["bm25"], judged)}
    weights: dict[str, Any] = {}
    facts: dict[str, Any] = {}
    rerankers = {target: asked.columns[target] for target in TARGETS}
    if "cross" in asked.columns:
        rerankers["cross encoder"] = asked.columns["cross"]
    for target, setting in product(TARGETS, settings):
        scores, penalties = _held_out_scores(asked, asked.columns[setting], asked.columns[target])
        rerankers[f"readout of {target}, {setting}"] = scores
        facts[f"{target}, {setting}"] = {
            "held_out_r": round(float(correlation(scores, asked.columns[target], asked.lists).mean()), 3),
            "penalty": penalties,
        }
    for name, scores in rerankers.items():
        rows[name] = _ndcg(asked, scores, judged)
        third = next((asked.columns[target] for target in TARGETS if f"of {target}," in name), None)
        ways = {"closed form": None} | ({"label-free": third} if third is not None else {})
        for way, teacher in ways.items():
            fused, used = _fused(asked, scores, teacher)
            rows[f"{name} + bm25, {way}"] = _ndcg(asked, fused, judged)
            weights[f"{name}, {way}"] = used
        best = max(np.arange(0.05, 1.0, 0.05), key=lambda w: _ndcg_at(asked, scores, float(w), judged).mean())
        rows[f"{name} + bm25, best weight seen afterwards"] = _ndcg_at(asked, scores, float(best), judged)
        weights[f"{name}, best afterwards"] = round(float(best), 2)
    table = {name: _summary(values, rows["bm25"]) for name, values in rows.items()}
    for name, row in table.items():
        low, high = row["gain_interval"]
        print(f"{name:64} {row[MEASURE]:6.1f}   gain {row['gain']:+5.1f} [{low:+.1f}, {high:+.1f}]")
    return {
        "questions": len(asked.queries),
        "table": table,
        "recovery": _recovery(table, settings),
        "by_kind": _by_kind(asked, rows),
        "weights": weights,
        "readouts": facts,
        "latency": _latency(asked, settings),
        "bytes_a_page": {
            name: round(float(asked.per_question[f"{name}, bytes"].mean())) for name in settings
        },
        "evidence_without_text": {name: round(share, 3) for name, share in evidence_without_text.items()},
    }


def _load(kinds: Mapping[str, str], qrels: Qrels, folder: Path) -> Asked:
    parts: dict[str, list[np.ndarray]] = {}
    per_question: dict[str, list[float]] = {}
    lengths, queries = [], []
    for query in kinds:
        with np.load(folder / f"{query}.npz") as found:
            data = dict(found)
        cross = folder / f"{query}.cross.npz"
        if cross.exists():
            with np.load(cross) as found:
                data |= {"cross": found["cross"], "cross_seconds": found["seconds"]}
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
    lists = Lists.of_lengths(lengths)
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


def _ndcg_at(asked: Asked, scores: Floats, weight: float, qrels: Qrels) -> Floats:
    return _ndcg(asked, fuse(asked.columns["bm25"], scores, weight, asked.lists), qrels)


def _held_out_scores(asked: Asked, states: Floats, targets: Floats) -> tuple[Floats, dict[str, float]]:
    """Readout scores of each kind by a readout fitted on the others, λ chosen among the others."""
    moments: dict[str, CenteredMoments] = {}
    for number, kind in enumerate(asked.kinds):
        own = moments.setdefault(str(kind), CenteredMoments(states.shape[1]))
        start, end = asked.lists.offsets[number : number + 2]
        own.add(states[start:end], targets[start:end])
    scores = np.zeros(len(states))
    penalties = {}
    for kind in moments:
        others = {name: own for name, own in moments.items() if name != kind}
        penalties[kind] = choose_penalty(others).deployed
        [readout] = ridge_path(merged(others, list(others)), np.array([penalties[kind]]))
        members = asked.lists.spread(asked.kinds == kind)
        scores[members] = states[members] @ readout
    return scores, penalties


def _fused(asked: Asked, scores: Floats, teacher: Floats | None) -> tuple[Floats, dict[str, float]]:
    """Fuse each kind at the weight the other kinds give: with their judgements, or with the teacher."""
    fused = np.zeros(len(scores))
    weights = {}
    third = asked.relevance if teacher is None else teacher
    for kind in dict.fromkeys(asked.kinds.tolist()):
        rest, members = asked.lists.select(asked.kinds != kind)
        bm25 = asked.columns["bm25"]
        correlations = correlate(bm25[members], scores[members], third[members], rest)
        estimate = closed_form_estimate if teacher is None else label_free_estimate
        weights[kind] = round(estimate(correlations).weight, 3)
        own, members = asked.lists.select(asked.kinds == kind)
        fused[members] = fuse(bm25[members], scores[members], weights[kind], own)
    return fused, weights


def _summary(values: Floats, base: Floats) -> dict[str, Any]:
    """Mean, and the gain over the retriever with a 95 % bootstrap interval over questions."""
    gains = values - base
    generator = np.random.default_rng(0)
    means = gains[generator.integers(len(gains), size=(_RESAMPLES, len(gains)))].mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return {
        MEASURE: round(float(values.mean()), 2),
        "gain": round(float(gains.mean()), 2),
        "gain_interval": [round(float(low), 2), round(float(high), 2)],
    }


def _recovery(table: Mapping[str, Any], settings: Sequence[str]) -> dict[str, float | None]:
    """Share of the fused teacher's gain that the fused readout keeps; None where there is no gain."""
    found: dict[str, float | None] = {}
    for target, setting in product(TARGETS, settings):
        teacher = table[f"{target} + bm25, closed form"]["gain"]
        for way in ("closed form", "label-free"):
            own = table[f"readout of {target}, {setting} + bm25, {way}"]["gain"]
            found[f"{target}, {setting}, {way}"] = round(own / teacher, 3) if teacher > 0 else None
    return found


def _by_kind(asked: Asked, rows: Mapping[str, Floats]) -> dict[str, Any]:
    shown = {}
    for kind in dict.fromkeys(asked.kinds.tolist()):
        own = asked.kinds == kind
        shown[kind] = {"questions": int(own.sum())} | {
            name: round(float(values[own].mean()), 1)
            for name, values in rows.items()
            if "afterwards" not in name
        }
    return shown


def _latency(asked: Asked, settings: Sequence[str]) -> dict[str, Any]:
    """Median milliseconds a question, and how many times faster than full passes over its candidates."""
    seconds = asked.per_question
    latency: dict[str, Any] = {
        f"full passes, {target}": round(1000 * float(np.median(seconds[f"{target}_seconds"])))
        for target in TARGETS
    }
    if "cross_seconds" in seconds:
        latency["cross encoder"] = round(1000 * float(np.median(seconds["cross_seconds"])))
    for name in settings:
        own = seconds[f"{name}, seconds"]
        latency[name] = round(1000 * float(np.median(own)))
        latency[f"{name}, times faster"] = round(float(np.median(seconds["likelihood_seconds"] / own)), 1)
    return latency
