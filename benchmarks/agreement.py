"""How closely a readout follows its teacher on real text: by the number of lists and the choice of penalty.

    python -m benchmarks.agreement --backbone DIR --folder DIR... --checkpoints DIR
        [--out results/agreement.json]

`real_documents` has run the language model on the questions of each folder. Half of the documents, drawn at
random, give the calibration lists; r is measured on the questions about the other documents. Target
likelihood, mean state, a third of the positions in int8. Every rule chooses among the same readouts:

- next part: lists go to parts in turn; each part picks the penalty of least error on the next; the mode
- by document: the same, with all lists of a document in one part
- summed error: lists in turn; the penalty whose errors on all parts, each held out once, have the least sum
- hindsight: the penalty of highest r on the other documents, which no rule can know
"""

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.report import publish
from benchmarks.weight_trust import JudgedCorpus, real_corpus
from ridgerank.calibration.ridge_fit import RidgeProblem, assign_folds, sum_by_fold
from ridgerank.fusion.correlations import correlation
from ridgerank.ragged import Floats
from ridgerank.readout.moments import CenteredMoments
from ridgerank.readout.penalty import choose_penalty, choose_penalty_of_few, merge_moments
from ridgerank.readout.ridge import PENALTIES, ridge_path

SIZES = (16, 32, 64)
_ASCENDING = np.sort(PENALTIES)


class Lists:
    """The lists of a corpus: their moments, documents, states and targets."""

    def __init__(self, corpus: JudgedCorpus) -> None:
        self.documents = np.array(corpus.groups)
        self._lists = corpus.data.lists
        self._states = np.asarray(corpus.data.states["mean"])
        self._targets = corpus.data.targets["likelihood"]
        data = corpus.data
        problem = RidgeProblem(data.lists, data.corpora, data.retriever, self._targets, self._states)
        self._moments = sum_by_fold(problem, [str(number) for number in range(len(data.lists))])

    def sum(self, numbers: Iterable[int]) -> CenteredMoments:
        """The moments of some lists together."""
        return merge_moments(self._moments, [str(number) for number in numbers])

    def agreement(self, readouts: Floats, chosen: np.ndarray) -> Floats:
        """Mean r of each readout with the teacher on the lists that are `chosen` (lists,)."""
        lists, members = self._lists.select(chosen)
        scores = self._states[members] @ readouts.T
        targets = self._targets[members]
        return np.array([np.nanmean(correlation(column, targets, lists)) for column in scores.T])


def measure_draw(lists: Lists, size: int, generator: np.random.Generator) -> dict[str, float]:
    """r on other documents by rule, calibrated on `size` lists."""
    documents = generator.permutation(np.unique(lists.documents))
    taken = np.cumsum([(lists.documents == document).sum() for document in documents])
    half = int(np.searchsorted(taken, max(size, len(lists.documents) // 2))) + 1
    seen = np.isin(lists.documents, documents[:half])
    numbers = generator.permutation(np.flatnonzero(seen))[:size]
    in_turn = assign_folds(("",) * size)
    parts = len(set(in_turn))
    order = list(dict.fromkeys(lists.documents[numbers]))
    by_document = [f"part {order.index(document) % parts + 1}" for document in lists.documents[numbers]]
    agreements = lists.agreement(ridge_path(lists.sum(numbers), _ASCENDING), ~seen)
    moments = _sum_folds(lists, numbers, in_turn)
    chosen = {
        "next part": choose_penalty(moments).deployed,
        "by document": choose_penalty(_sum_folds(lists, numbers, by_document)).deployed,
        "summed error": choose_penalty_of_few(moments).deployed,
    }
    found = {rule: float(agreements[penalty == _ASCENDING][0]) for rule, penalty in chosen.items()}
    return found | {"hindsight": float(agreements.max())}


def _sum_folds(lists: Lists, numbers: np.ndarray, folds: Sequence[str]) -> dict[str, CenteredMoments]:
    return {
        fold: lists.sum([number for number, of in zip(numbers, folds, strict=True) if of == fold])
        for fold in dict.fromkeys(folds)
    }


def measure(corpus: JudgedCorpus, draws: int) -> list[dict[str, Any]]:
    """A row for each number of lists: the mean r of each rule, and how sure its difference is."""
    lists, generator, rows = Lists(corpus), np.random.default_rng(0), []
    for size in SIZES:
        drawn = [measure_draw(lists, size, generator) for _ in range(draws)]
        values = {rule: np.array([each[rule] for each in drawn]) for rule in drawn[0]}
        gains = {rule: values[rule] - values["next part"] for rule in values if rule != "next part"}
        rows.append(
            {
                "folder": corpus.name,
                "backbone": corpus.backbone,
                "lists": size,
                "agreement": {rule: round(float(of_rule.mean()), 3) for rule, of_rule in values.items()},
                "gain": {
                    rule: {"mean": round(float(gain.mean()), 3), "error": round(_standard_error(gain), 3)}
                    for rule, gain in gains.items()
                },
            }
        )
        print(rows[-1], flush=True)
    return rows


def _standard_error(values: Floats) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values)))


def main() -> None:
    """Measure every folder, print the rows, then one line of JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--backbone", required=True, help="folder of a language model")
    parser.add_argument("--folder", type=Path, action="append", required=True, help="PDFs with questions")
    parser.add_argument("--checkpoints", type=Path, default=Path("build/real_documents"))
    parser.add_argument("--draws", type=int, default=30)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows = []
    for folder in options.folder:
        corpus = real_corpus(folder, options.backbone, options.checkpoints)
        if corpus is None:
            parser.error(f"{folder}: no question was run with {options.backbone}; run real_documents first")
        rows += measure(corpus, options.draws)
    publish({"target": "likelihood", "state": "mean", "draws": options.draws, "rows": rows}, options.out)


if __name__ == "__main__":
    main()
