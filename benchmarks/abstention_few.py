"""How many judged queries a probability needs, on the first family, one corpus left out.

    python -m benchmarks.abstention_few [--work DIR] [--out results/abstention_few.json]

Readouts are fitted on three corpora without judgements; probabilities on n judged queries drawn from these,
many times; both are evaluated on the fourth. Zero judged queries are the margin's own odds.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.abstention import READOUT, UNFITTED, as_problem, evaluate, fit, select_answerable
from benchmarks.report import publish
from experiments.protocols.probability_measures import auroc, expected_calibration_error
from experiments.reproduce.analysis import Analysis
from experiments.reproduce.experiment import Experiment
from experiments.reproduce.settings import make_settings
from ridgerank.calibration.relevance_fit import predict_held_out
from ridgerank.cli.progress_bars import Bar

SIZES = (4, 8, 16, 32, 64, 128)
DRAWS = 25


def measure(analysis: Analysis, backbone: str) -> list[dict[str, Any]]:
    """One row for each number of judged queries."""
    retriever = analysis.settings.retrievers[0]
    corpora = [analysis.scored(key, retriever, backbone) for key in analysis.experiment.corpus_keys(0)]
    generator = np.random.default_rng(0)
    measured: dict[int, list[tuple[float, float, float]]] = {size: [] for size in (0, *SIZES)}
    for corpus in corpora:
        problem, relevance = as_problem([other for other in corpora if other is not corpus])
        readout, predicted = predict_held_out(problem)
        scores, relevant = readout.predict(corpus.states), corpus.relevance > 0
        lists, members = select_answerable(problem.lists, relevance > 0)
        for size in measured:
            for _ in range(DRAWS if size else 1):
                models = UNFITTED
                if size:
                    chosen = np.zeros(len(lists), dtype=bool)
                    chosen[generator.choice(len(lists), size, replace=False)] = True
                    drawn, rows = lists.select(chosen)
                    models = fit(predicted[members][rows], drawn, relevance[members][rows] > 0)
                outcome = evaluate(models, scores, corpus.lists, relevant)
                measured[size].append(
                    (
                        expected_calibration_error(outcome.pages, outcome.relevant),
                        expected_calibration_error(outcome.queries, outcome.answered),
                        auroc(outcome.queries, outcome.answered),
                    )
                )
    rows_of_table = []
    for size, values in measured.items():
        page, query, told = np.array(values).T
        rows_of_table.append(
            {
                "backbone": backbone,
                "score": READOUT,
                "judged_queries": size,
                "ece": round(float(page.mean()), 4),
                "ece_90_percent": round(float(np.quantile(page, 0.9)), 4),
                "ece_answered": round(float(query.mean()), 4),
                "auroc": round(float(told.mean()), 4),
            }
        )
    return rows_of_table


def main() -> None:
    """Measure both backbones, print a table, then one line of JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", type=Path, default=Path("build/reproduce"))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    settings = make_settings("miniature", options.work, device="cpu")
    rows: list[dict[str, Any]] = []
    with Bar() as bar:
        analysis = Analysis(Experiment(settings, options.work / "stages", bar))
        for backbone in settings.backbones:
            rows += measure(analysis, backbone)
    for row in rows:
        print(
            f"{row['backbone']:10} {row['judged_queries']:4} judged: ECE {row['ece']:.3f}, in nine of ten "
            f"draws up to {row['ece_90_percent']:.3f}; of an answer {row['ece_answered']:.3f}, "
            f"AUROC {row['auroc']:.3f}"
        )
    publish({"corpora": "miniature 1", "draws": DRAWS, "rows": rows}, options.out)


if __name__ == "__main__":
    main()
