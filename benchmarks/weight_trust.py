"""How far the weight without judgements, or with few, can be trusted: against judgements, corpus by corpus.

    python -m benchmarks.weight_trust [--work build/reproduce] [--out results/weight_trust.json]
        [--backbone DIR]... [--folder DIR]... [--checkpoints DIR]

Every corpus of the miniature, behind both retrievers and for both backbones, is calibrated on its own queries
as `ridgerank calibrate` does; scores are held out. `--work` is the folder of `ridgerank reproduce`, whose
stages are used. A `--backbone` is a language model that `real_documents` has run on the questions of each
`--folder` (documents/, queries.jsonl, qrels.trec). Judgements only compare: nDCG@5 at the retriever's own
order, at w = 0.5, at §B.6 of the same readout, at the weight deployed without judgements, at that of 16
judged queries combined with it (mean over draws), and at w* of all judgements.
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.miniature import NEVER_TIMED
from benchmarks.real_documents_checkpoints import checkpoint_folder, load_questions, stored_path
from benchmarks.real_documents_questions import paths_of, read_question_folder
from benchmarks.real_documents_report import question_ndcg
from benchmarks.report import publish
from experiments.datasets.drawn_corpora import load_miniature
from experiments.reproduce.analysis import Analysis
from experiments.reproduce.experiment import Experiment
from experiments.reproduce.settings import ExperimentSettings
from ridgerank.calibration.fusion_weight import decide_weight
from ridgerank.calibration.selection import CalibrationData, FittedOption, select_readout
from ridgerank.cli.progress_bars import Bar
from ridgerank.fusion.correlations import correlate
from ridgerank.fusion.estimate import closed_form_estimate
from ridgerank.fusion.standardize import fuse_scores
from ridgerank.ragged import Bools, Floats
from ridgerank.shipped_models import BACKBONES, RETRIEVERS
from ridgerank.store.pruning import Keep

FEW = 16
DRAWS = 50
RESAMPLES = 2000
METHODS = ("retriever", "half", "paper", "label_free", "few_judged", "judged")
_GRID = np.linspace(0.0, 1.0, 51)
_KEEP = "stride 1/3"


@dataclass(frozen=True, slots=True, eq=False)
class JudgedCorpus:
    """Queries as a calibration sees them, judgements to compare with, and groups to resample."""

    name: str
    backbone: str
    retriever: str
    data: CalibrationData
    groups: Sequence[str]
    """(queries,): the document of each, or the query itself."""
    ndcg: Callable[[Floats], Floats]
    """Scores (members,) → nDCG@5 of every query, in percent."""


def drawn_corpora(work: Path) -> Iterator[JudgedCorpus]:
    """The miniature: every corpus behind every retriever, for every backbone."""
    families = load_miniature(work / "corpora")
    settings = ExperimentSettings(
        families=tuple(families),
        backbones=BACKBONES,
        retrievers=RETRIEVERS,
        baselines="miniature",
        device="cpu",
        depths=(),
        full_pass_every=NEVER_TIMED,
    )
    with Bar() as bar:
        experiment = Experiment(settings, work / "stages", bar)
        analysis = Analysis(experiment)
        for backbone in BACKBONES:
            for retriever in RETRIEVERS:
                for key in [key for number in range(len(families)) for key in experiment.corpus_keys(number)]:
                    scored = analysis.scored(key, retriever, backbone)
                    data = CalibrationData(
                        lists=scored.lists,
                        corpora=("",) * len(scored.lists),
                        retriever=scored.retriever,
                        targets={"margin": scored.margins},
                        states={"last": scored.states.astype(np.float64)},
                        relevance=scored.relevance,
                    )
                    yield JudgedCorpus(scored.corpus, backbone, retriever, data, scored.queries, scored.ndcg)


def real_corpus(folder: Path, backbone: str, checkpoints: Path) -> JudgedCorpus | None:
    """The questions about one folder of PDFs that a language model has been run on; None where none were."""
    questions = read_question_folder(*paths_of(folder), ocr_cache=checkpoints / "ocr")
    of_model = checkpoint_folder(checkpoints, questions, backbone)
    run = [
        question
        for question in questions.questions
        if stored_path(of_model, question.query_id, Keep.parse(_KEEP)).exists()
    ]
    if not run:
        return None
    table = load_questions(run, questions.qrels, of_model, [_KEEP])
    qrels = {query: questions.qrels[query] for query in table.queries}
    return JudgedCorpus(
        folder.name,
        Path(backbone).name,
        "bm25",
        table.observed(None, _KEEP, judged=True),
        table.documents,
        lambda scores: question_ndcg(table, scores, qrels),
    )


def measure(corpus: JudgedCorpus) -> dict[str, Any]:
    """Weights of one corpus, and what each ranks."""
    data = corpus.data
    assert data.relevance is not None
    blind = CalibrationData(data.lists, data.corpora, data.retriever, data.targets, data.states, None)
    fitted = select_readout(blind).selected
    label_free, paper = fitted.decision.deployed, fitted.decision.paper_label_free
    _, members = data.problem(fitted.option.target, fitted.option.state)
    scores = np.zeros(data.lists.members)
    scores[members] = fitted.fit.held_out_scores
    judged = closed_form_estimate(
        correlate(
            fitted.problem.retriever,
            fitted.fit.held_out_scores,
            data.relevance[members],
            fitted.problem.lists,
        )
    )
    by_weight = np.array(
        [corpus.ndcg(fuse_scores(data.retriever, scores, float(w), data.lists)) for w in _GRID]
    )
    few = _few_judged_weights(fitted, data.relevance[members])
    weights = {"retriever": 0.0, "half": 0.5, "paper": paper.weight, "label_free": label_free.weight}
    qualities = {name: _quality(by_weight, w) for name, w in (weights | {"judged": judged.weight}).items()}
    qualities["few_judged"] = np.mean([_quality(by_weight, w) for w in few], axis=0)
    low, high = label_free.weight_interval
    return {
        "corpus": corpus.name,
        "backbone": corpus.backbone,
        "retriever": corpus.retriever,
        "queries": len(data.lists),
        "reading": fitted.option.name,
        "agreement": round(fitted.decision.agreement, 3),
        "supported": not fitted.decision.warnings,
        "weights": {name: round(w, 3) for name, w in (weights | {"judged": judged.weight}).items()},
        "interval": [round(low, 3), round(high, 3)],
        "holds_judged": low <= judged.weight <= high,
        "ndcg_at_5": {name: round(float(qualities[name].mean()), 2) for name in METHODS},
        "gain_interval": _gain_interval(qualities["label_free"] - qualities["retriever"], corpus.groups),
    }


def _few_judged_weights(fitted: FittedOption, relevance: Floats) -> list[float]:
    """The weights deployed when only `FEW` of the queries are judged, over draws of them."""
    generator = np.random.default_rng(0)
    lists = fitted.problem.lists
    weights = []
    for _ in range(DRAWS):
        chosen: Bools = np.zeros(len(lists), dtype=bool)
        chosen[generator.choice(len(lists), size=min(FEW, len(lists)), replace=False)] = True
        # A query without judgements has constant relevance, and is left out of judged correlations.
        masked = np.where(chosen[lists.list_numbers()], relevance, 0.0)
        weights.append(decide_weight(fitted.problem, fitted.fit, masked).deployed.weight)
    return weights


def _quality(by_weight: Floats, weight: float) -> Floats:
    nearest: Floats = by_weight[round(weight * (len(_GRID) - 1))]
    return nearest


def _gain_interval(gains: Floats, groups: Sequence[str]) -> list[float]:
    """95 % of the mean gain over the retriever, whole groups drawn with replacement."""
    _, numbers = np.unique(np.array(groups), return_inverse=True)
    sums, counts = np.bincount(numbers, gains), np.bincount(numbers)
    drawn = np.random.default_rng(0).integers(len(sums), size=(RESAMPLES, len(sums)))
    means = sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1)
    return [round(float(edge), 2) for edge in np.quantile(means, [0.025, 0.975])]


def summarize(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What the rows say together."""
    losses = {
        name: np.array([row["ndcg_at_5"]["judged"] - row["ndcg_at_5"][name] for row in rows])
        for name in METHODS
    }
    errors = np.array([abs(row["weights"]["label_free"] - row["weights"]["judged"]) for row in rows])
    gains = [row["ndcg_at_5"]["label_free"] - row["ndcg_at_5"]["retriever"] for row in rows]
    return {
        "corpora": len(rows),
        "mean_loss_to_judged": {name: round(float(loss.mean()), 2) for name, loss in losses.items()},
        "largest_loss_to_judged": {name: round(float(loss.max()), 2) for name, loss in losses.items()},
        "least_gain_over_retriever": round(float(min(gains)), 2),
        "interval_holds_judged_percent": round(
            100 * float(np.mean([row["holds_judged"] for row in rows])), 1
        ),
        "weight_error": {"mean": round(float(errors.mean()), 3), "largest": round(float(errors.max()), 3)},
    }


def main() -> None:
    """Measure every corpus, print a table, then one line of JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", type=Path, default=Path("build/reproduce"))
    parser.add_argument("--backbone", action="append", default=[], help="folder of a language model")
    parser.add_argument("--folder", type=Path, action="append", default=[], help="PDFs with questions")
    parser.add_argument("--checkpoints", type=Path, default=Path("build/real_documents"))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    drawn = [_show(measure(corpus)) for corpus in drawn_corpora(options.work)]
    real = [
        _show(measure(corpus))
        for folder in options.folder
        for backbone in options.backbone
        if (corpus := real_corpus(folder, backbone, options.checkpoints)) is not None
    ]
    summary = {"miniature": summarize(drawn)} | ({"real documents": summarize(real)} if real else {})
    publish({"judged_queries": FEW, "draws": DRAWS, "summary": summary, "rows": [*drawn, *real]}, options.out)


def _show(row: dict[str, Any]) -> dict[str, Any]:
    qualities = "  ".join(f"{name} {value:.1f}" for name, value in row["ndcg_at_5"].items())
    weights = "  ".join(f"{name} {value:.2f}" for name, value in row["weights"].items())
    print(f"{row['corpus']} {row['backbone']} {row['retriever']}: {qualities} | {weights} {row['interval']}")
    return row


if __name__ == "__main__":
    main()
