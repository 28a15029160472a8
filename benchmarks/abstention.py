"""Probabilities of relevance on corpora they were not fitted on, and whether they tell when nothing answers.

    python -m benchmarks.abstention [--work DIR] [--out results/abstention.json]

Each of the miniature's twelve corpora in turn is left out: readout, probability of a page and probability of
an answer are fitted on the eleven others. Features were chosen on the first family; the second is reported.
A query is unanswered once its answering pages are out of its list of 20. That stands in for taking them out
of the store: the pages that would move up have no margin. For the readout and the first family, `refilled`
has the lists as they would be, filled up from the retriever's hundred. Stages in --work (a folder of
`ridgerank reproduce`) are read, and computed where they are missing.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.abstention_figure import draw_figure
from benchmarks.report import publish
from experiments.protocols.probability_measures import (
    BINS,
    auroc,
    expected_calibration_error,
    reliability_bins,
)
from experiments.protocols.scored_corpus import ScoredCorpus
from experiments.reproduce.analysis import Analysis
from experiments.reproduce.corpus_key import CorpusKey
from experiments.reproduce.experiment import Experiment
from experiments.reproduce.settings import make_settings
from ridgerank.calibration.relevance_fit import fit_probabilities, predict_held_out
from ridgerank.calibration.ridge_fit import RidgeProblem
from ridgerank.cli.progress_bars import Bar
from ridgerank.fusion.relevance_probability import (
    PAGE_FEATURES,
    QUERY_FEATURES,
    Logistic,
    page_features,
    query_features,
    remove_relevant,
)
from ridgerank.ragged import Bools, Floats, Ragged
from ridgerank.readout.target_readout import TargetReadout

MARGIN, READOUT = SCORES = ("full model's margin", "readout")
ANSWERING = {"relevant at all": 1, "answers": 2}
"""What counts as an answering page → its least grade."""
MIN_SCORE = 0.5
"""`empty_…` is the share of lists that `--min-score` leaves without a page at this probability."""
UNFITTED = (
    Logistic(0.0, (1.0,) + (0.0,) * (len(PAGE_FEATURES) - 1)),
    Logistic(0.0, (1.0,) + (0.0,) * (len(QUERY_FEATURES) - 1)),
)
"""Without judgements: the margin's own odds."""


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """Probabilities on a corpus, with the truth."""

    pages: Floats
    relevant: Bools
    queries: Floats
    """Of lists as they are, then of lists without their answering pages."""
    answered: Bools
    best_pages: Floats
    """The largest probability of a page in each of these lists."""

    @classmethod
    def join(cls, outcomes: Sequence["Outcome"]) -> "Outcome":
        """Several corpora as one."""
        names = ("pages", "relevant", "queries", "answered", "best_pages")
        return cls(*(np.concatenate([getattr(each, name) for each in outcomes]) for name in names))


def main() -> None:
    """Evaluate every backbone behind every retriever, print a table, then one line of JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", type=Path, default=Path("build/reproduce"))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--figure", type=Path, help="the picture, such as docs/abstention.png")
    options = parser.parse_args()
    settings = make_settings("miniature", options.work, device="cpu")
    rows: list[dict[str, Any]] = []
    drawn: dict[str, Outcome] = {}
    with Bar() as bar:
        experiment = Experiment(settings, options.work / "stages", bar)
        analysis = Analysis(experiment)
        for backbone in settings.backbones:
            for retriever in settings.retrievers:
                measured, reported = measure(analysis, backbone, retriever)
                rows += measured
                if retriever == settings.retrievers[0]:
                    drawn |= {f"{backbone}, {score}": outcome for score, outcome in reported.items()}
    show(rows)
    if options.figure:
        draw_figure(drawn, options.figure)
    publish(
        {
            "candidates": settings.candidates,
            "bins": f"{BINS} of equal width over [0, 1]",
            "min_score": MIN_SCORE,
            "page_features": PAGE_FEATURES[:1],
            "query_features": QUERY_FEATURES,
            "rows": rows,
        },
        options.out,
    )


def measure(
    analysis: Analysis, backbone: str, retriever: str
) -> tuple[list[dict[str, Any]], dict[str, Outcome]]:
    """Rows of one backbone behind one retriever; fitted outcomes on the second family, for the picture."""
    keys = analysis.experiment.corpus_keys()
    corpora = {key: analysis.scored(key, retriever, backbone) for key in keys}
    outcomes: dict[tuple[str, str, str, int], list[Outcome]] = {}
    first_retriever = retriever == analysis.settings.retrievers[0]
    for key, corpus in corpora.items():
        problem, relevance = as_problem([other for each, other in corpora.items() if each != key])
        readout, predicted = predict_held_out(problem)
        scores = {
            MARGIN: (problem.targets, corpus.margins),
            READOUT: (predicted, readout.predict(corpus.states)),
        }
        for answering, grade in ANSWERING.items():
            for score, (fitted_on, evaluated) in scores.items():
                fitted = fit(fitted_on, problem.lists, relevance >= grade)
                for name, models in (("judgements of other corpora", fitted), ("none", UNFITTED)):
                    outcome = evaluate(models, evaluated, corpus.lists, corpus.relevance >= grade)
                    outcomes.setdefault((score, answering, name, key.family), []).append(outcome)
            if first_retriever and key.family == 0:
                lists = refill(analysis, key, corpus, readout, backbone, retriever, grade=grade)
                outcome = evaluate_refilled(fitted, readout.predict(corpus.states), corpus, lists, grade)
                refilled = (READOUT, answering, "judgements of other corpora, refilled", key.family)
                outcomes.setdefault(refilled, []).append(outcome)
    rows = [
        {
            "backbone": backbone,
            "retriever": retriever,
            "score": score,
            "answering": answering,
            "fitted_to": fitted_to,
            "corpora": f"miniature {family + 1}",
            **summarize(parts),
        }
        for (score, answering, fitted_to, family), parts in outcomes.items()
    ]
    picked = {score: (score, "relevant at all", "judgements of other corpora", 1) for score in SCORES}
    return rows, {score: Outcome.join(outcomes[pick]) for score, pick in picked.items()}


def as_problem(corpora: Sequence[ScoredCorpus]) -> tuple[RidgeProblem, Floats]:
    """Corpora as calibration lists, each corpus a fold, and the grades of their candidates."""
    problem = RidgeProblem(
        lists=Ragged.of_lengths(np.concatenate([each.lists.lengths for each in corpora]).tolist()),
        corpora=tuple(each.corpus for each in corpora for _ in each.queries),
        retriever=np.concatenate([each.retriever for each in corpora]),
        targets=np.concatenate([each.margins for each in corpora]),
        states=np.concatenate([each.states for each in corpora]),
    )
    return problem, np.concatenate([each.relevance for each in corpora])


def select_answerable(lists: Ragged, relevant: Bools) -> tuple[Ragged, Bools]:
    """Lists with answering pages and others."""
    labels = relevant.astype(np.float64)
    return lists.select(np.asarray((lists.max(labels) > 0) & (lists.min(labels) < 1)))


def fit(scores: Floats, lists: Ragged, relevant: Bools) -> tuple[Logistic, Logistic]:
    """Both probabilities, as `ridgerank calibrate --qrels` fits them."""
    selected, members = select_answerable(lists, relevant)
    return fit_probabilities(scores[members], selected, relevant[members])


def evaluate(models: tuple[Logistic, Logistic], scores: Floats, lists: Ragged, relevant: Bools) -> Outcome:
    """The probabilities of pages in lists as they are, and of queries with and without answering pages."""
    selected, members = select_answerable(lists, relevant)
    unanswered, kept = remove_relevant(selected, relevant[members])
    without = query_features(scores[members][kept], unanswered)
    return _outcome(models, scores, lists, relevant, without)


def evaluate_refilled(
    models: tuple[Logistic, Logistic],
    scores: Floats,
    corpus: ScoredCorpus,
    unanswered: list[Floats],
    grade: int,
) -> Outcome:
    """The same with unanswered lists that have as many pages as the others."""
    lengths = [len(each) for each in unanswered]
    without = query_features(np.concatenate(unanswered), Ragged.of_lengths(lengths))
    return _outcome(models, scores, corpus.lists, corpus.relevance >= grade, without)


def _outcome(
    models: tuple[Logistic, Logistic], scores: Floats, lists: Ragged, relevant: Bools, without: Floats
) -> Outcome:
    page, query = models
    selected, members = select_answerable(lists, relevant)
    features = np.concatenate([query_features(scores[members], selected), without])
    best, mean = features[:, QUERY_FEATURES.index("best")], features[:, QUERY_FEATURES.index("mean")]
    return Outcome(
        pages=page.probabilities(page_features(scores, lists)),
        relevant=relevant,
        queries=query.probabilities(features),
        answered=np.arange(len(features)) < len(selected),
        best_pages=page.probabilities(np.column_stack([best, best - mean])),
    )


def refill(
    analysis: Analysis,
    key: CorpusKey,
    corpus: ScoredCorpus,
    readout: TargetReadout,
    backbone: str,
    retriever: str,
    *,
    grade: int,
) -> list[Floats]:
    """Predicted targets of each answerable query's first 20 pages that do not answer it, of the hundred."""
    experiment, count = analysis.experiment, analysis.settings.candidates
    deeper = experiment.deeper(key, backbone, retriever).astype(np.float64)
    page_ids = experiment.pools(key, retriever).page_ids[:, : count + deeper.shape[1]]
    names = analysis.references(key)
    states = np.concatenate([corpus.states.reshape(len(page_ids), count, -1), deeper], axis=1)
    refilled = []
    for query_id, ids, list_states in zip(corpus.queries, page_ids.tolist(), states, strict=True):
        grades = np.array([corpus.qrels[query_id].get(names[page_id], 0) for page_id in ids])
        answering = grades >= grade
        if answering[:count].any():
            refilled.append(readout.predict(list_states[~answering][:count]))
    return refilled


def summarize(parts: Sequence[Outcome]) -> dict[str, Any]:
    """Both measures over all corpora together, and for the worst corpus."""
    whole = Outcome.join(parts)
    error = expected_calibration_error(whole.pages, whole.relevant)
    empty = (whole.queries < MIN_SCORE) | (whole.best_pages < MIN_SCORE)
    return {
        "pages": len(whole.pages),
        "queries": int(whole.answered.sum()),
        "ece": round(error, 4),
        "ece_equal_mass": round(expected_calibration_error(whole.pages, whole.relevant, equal_mass=True), 4),
        "ece_worst_corpus": round(
            max(expected_calibration_error(each.pages, each.relevant) for each in parts), 4
        ),
        "auroc": round(auroc(whole.queries, whole.answered), 4),
        "auroc_worst_corpus": round(min(auroc(each.queries, each.answered) for each in parts), 4),
        "ece_answered": round(expected_calibration_error(whole.queries, whole.answered), 4),
        "empty_answered": round(float(empty[whole.answered].mean()), 4),
        "empty_unanswered": round(float(empty[~whole.answered].mean()), 4),
        "empty_unanswered_by_pages_alone": round(
            float((whole.best_pages < MIN_SCORE)[~whole.answered].mean()), 4
        ),
        "reliability": [
            [part.rows, round(part.claimed, 4), round(part.observed, 4)]
            for part in reliability_bins(whole.pages, whole.relevant)
        ],
    }


def show(rows: Sequence[dict[str, Any]]) -> None:
    """Print the rows as a table."""
    print(f"{'backbone':10} {'retriever':19} {'score':20} {'answering':16} corpora     ECE and AUROC (worst)")
    for row in rows:
        print(
            f"{row['backbone']:10} {row['retriever']:19} {row['score']:20} {row['answering']:16} "
            f"{row['corpora']:11} {row['ece']:.3f} ({row['ece_worst_corpus']:.3f})  "
            f"{row['auroc']:.3f} ({row['auroc_worst_corpus']:.3f})  fitted to {row['fitted_to']}"
        )


if __name__ == "__main__":
    main()
