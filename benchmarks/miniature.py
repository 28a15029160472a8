"""The miniature's models on its first four corpora: retriever, full cross encoder, RidgeRank, their times.

python -m benchmarks.miniature [--backbone mini-qwen] [--retriever mini-colqwen] [--work DIR] [--out FILE]

The stages are those of `ridgerank reproduce`; here all queries of three corpora fit the readout that ranks
the fourth, separately for each pair of models. Weights are read on the next corpus. Results stay in --work:
run it again to continue.
"""

import argparse
import statistics
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.report import publish
from experiments.datasets.drawn_corpora import load_miniature
from experiments.protocols.held_out import HeldOutCorpus, hold_out_each
from experiments.protocols.recovery import recovery
from experiments.reproduce.analysis import Analysis
from experiments.reproduce.experiment import Experiment
from experiments.reproduce.settings import ExperimentSettings
from ridgerank.cli.progress_bars import Bar
from ridgerank.miniature.corpora import PLANS
from ridgerank.shipped_models import BACKBONES, RETRIEVERS
from ridgerank.store.pruning import Keep

FAMILY = 1
TIMED_EVERY = 20
"""Every 20th query is also timed by full passes."""
console = Console(stderr=True)


def main() -> None:
    """Measure the pairs of models asked for, print a table of each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--backbone", action="append", help="embedded name or folder; both embedded ones")
    parser.add_argument("--retriever", action="append", help="embedded name or folder; both embedded ones")
    parser.add_argument("--keep", default="stride 1/3", help="visual positions to keep")
    parser.add_argument("--work", type=Path, default=Path("build/miniature"))
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    names = frozenset(plan.name for plan in PLANS if plan.family == FAMILY)
    families = load_miniature(arguments.work / "corpora", corpora=names)
    rows = []
    for backbone in arguments.backbone or BACKBONES:
        settings = ExperimentSettings(
            families=tuple(families),
            backbones=(backbone,),
            retrievers=tuple(arguments.retriever or RETRIEVERS),
            baselines="miniature",
            device="cpu",
            keep=Keep.parse(arguments.keep),
            depths=(),
            full_pass_every=TIMED_EVERY,
        )
        with Bar() as bar:
            work = arguments.work / arguments.keep.replace("/", "-") / "stages"
            analysis = Analysis(Experiment(settings, work, bar))
            for retriever in settings.retrievers:
                rows.append(measure(analysis, backbone, retriever))
                show(rows[-1])
    publish({"candidates": 20, "family": FAMILY, "keep": arguments.keep, "pairs": rows}, arguments.out)


def measure(analysis: Analysis, backbone: str, retriever: str) -> dict[str, Any]:
    """All figures of one backbone behind one retriever."""
    corpus_keys = analysis.experiment.corpus_keys(0)
    corpora = [analysis.scored(corpus_key, retriever, backbone) for corpus_key in corpus_keys]
    held_out, choice = hold_out_each(corpora)
    first = analysis.settings.retrievers[0]
    full, stored = [], []
    for corpus_key in corpus_keys:
        timed = analysis.experiment.states(corpus_key, backbone, first)
        full.append(float(np.nanmedian(timed.full_ms)))
        shallow = analysis.experiment.states(corpus_key, backbone, retriever)
        stored.append(float(np.median(shallow.reading_ms + shallow.compute_ms)))
    speedup = statistics.median(slow / fast for slow, fast in zip(full, stored, strict=True))
    return _figures(backbone, retriever, held_out, dict(choice.chosen), speedup)


def _figures(
    backbone: str, retriever: str, held_out: list[HeldOutCorpus], penalties: dict[str, float], speedup: float
) -> dict[str, Any]:
    by_corpus = {
        each.scored.corpus: {name: float(values.mean()) for name, values in each.ndcg_by_method().items()}
        for each in held_out
    }
    methods = list(next(iter(by_corpus.values())))
    means = {method: statistics.mean(ndcg[method] for ndcg in by_corpus.values()) for method in methods}

    def recovered(method: str) -> float:
        return round(recovery(means["retriever"], means[method], means["cross encoder"]), 1)

    return {
        "backbone": Path(backbone).name,
        "retriever": Path(retriever).name,
        "ndcg_at_5": {method: round(value, 2) for method, value in means.items()},
        "recovery_percent": recovered("ridgerank"),
        "recovery_label_free_percent": recovered("ridgerank, label free"),
        "speedup": round(speedup, 1),
        "penalties": penalties,
        "by_corpus": {
            each.scored.corpus: {
                **{method: round(value, 2) for method, value in by_corpus[each.scored.corpus].items()},
                "weight": round(each.weight, 3),
                "label-free weight": round(each.label_free.weight, 3),
                "agreement with the full model": round(each.agreement, 3),
            }
            for each in held_out
        },
    }


def show(row: dict[str, Any]) -> None:
    """Print one pair of models as a table."""
    table = Table(title=f"{row['backbone']} behind {row['retriever']}: nDCG@5")
    corpora = list(row["by_corpus"])
    for column in ("method", *corpora, "mean"):
        table.add_column(column, justify="left" if column == "method" else "right")
    for method, mean in row["ndcg_at_5"].items():
        table.add_row(method, *(f"{row['by_corpus'][name][method]:.1f}" for name in corpora), f"{mean:.1f}")
    console.print(table)
    console.print(
        f"recovery {row['recovery_percent']} %, label free {row['recovery_label_free_percent']} %; "
        f"{row['speedup']}x faster than full passes"
    )


if __name__ == "__main__":
    main()
