"""Which features tell whether a list holds an answer: log loss on the first family, one corpus left out.

    python -m benchmarks.abstention_features [--work DIR] [--out results/abstention_features.json]

What `fusion/relevance_probability.py` uses was chosen by this, on the first family alone. Less is better: a
log loss is the mean of −log(probability given to what is true), over both backbones, both scores and both
meanings of an answering page, behind the first retriever.
"""

import argparse
from pathlib import Path

import numpy as np

from benchmarks.abstention import ANSWERING, as_problem, select_answerable
from benchmarks.report import publish
from experiments.reproduce.analysis import Analysis
from experiments.reproduce.experiment import Experiment
from experiments.reproduce.settings import make_settings
from ridgerank.calibration.relevance_fit import predict_held_out
from ridgerank.cli.progress_bars import Bar
from ridgerank.fusion.relevance_probability import (
    PAGE_FEATURES,
    QUERY_FEATURES,
    fit_logistic,
    page_features,
    query_features,
    remove_relevant,
)
from ridgerank.ragged import Bools, Floats, Ragged

QUERY_SETS = (
    ("best",),
    ("best", "second"),
    ("best", "mean"),
    ("best", "spread"),
    ("best", "mean", "spread"),
    QUERY_FEATURES,
)
PAGE_SETS = (PAGE_FEATURES[:1], PAGE_FEATURES)


def rows_of(scores: Floats, lists: Ragged, relevant: Bools) -> dict[str, tuple[Floats, Bools]]:
    """Features and labels of pages and of queries."""
    selected, members = select_answerable(lists, relevant)
    scores, relevant = scores[members], relevant[members]
    unanswered, kept = remove_relevant(selected, relevant)
    queries = np.concatenate([query_features(scores, selected), query_features(scores[kept], unanswered)])
    return {
        "page": (page_features(scores, selected), relevant),
        "query": (queries, np.arange(len(queries)) < len(selected)),
    }


def log_loss(probabilities: Floats, labels: Bools) -> float:
    """−log of the probability given to what is true, on average."""
    return float(-np.log(np.clip(np.where(labels, probabilities, 1 - probabilities), 1e-12, 1)).mean())


def measure(analysis: Analysis, backbone: str) -> dict[str, list[float]]:
    """Feature set → log losses of one backbone."""
    retriever = analysis.settings.retrievers[0]
    corpora = [analysis.scored(key, retriever, backbone) for key in analysis.experiment.corpus_keys(0)]
    losses: dict[str, list[float]] = {}
    for corpus in corpora:
        problem, relevance = as_problem([other for other in corpora if other is not corpus])
        readout, predicted = predict_held_out(problem)
        for grade in ANSWERING.values():
            for fitted_on, evaluated in (
                (problem.targets, corpus.margins),
                (predicted, readout.predict(corpus.states)),
            ):
                train = rows_of(fitted_on, problem.lists, relevance >= grade)
                test = rows_of(evaluated, corpus.lists, corpus.relevance >= grade)
                for kind, names, sets in (
                    ("page", PAGE_FEATURES, PAGE_SETS),
                    ("query", QUERY_FEATURES, QUERY_SETS),
                ):
                    for features in sets:
                        columns = [names.index(name) for name in features]
                        model = fit_logistic(train[kind][0][:, columns], train[kind][1])
                        loss = log_loss(model.probabilities(test[kind][0][:, columns]), test[kind][1])
                        losses.setdefault(f"{kind}: {', '.join(features)}", []).append(loss)
    return losses


def main() -> None:
    """Compare the sets, print a table, then one line of JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", type=Path, default=Path("build/reproduce"))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    settings = make_settings("miniature", options.work, device="cpu")
    losses: dict[str, list[float]] = {}
    with Bar() as bar:
        analysis = Analysis(Experiment(settings, options.work / "stages", bar))
        for backbone in settings.backbones:
            for features, values in measure(analysis, backbone).items():
                losses.setdefault(features, []).extend(values)
    means = {features: round(float(np.mean(values)), 4) for features, values in losses.items()}
    for features, mean in means.items():
        print(f"{features:40} {mean:.4f}")
    publish({"corpora": "miniature 1", "log_loss": means}, options.out)


if __name__ == "__main__":
    main()
