"""The miniature's models on its first four corpora: retriever, full cross encoder, RidgeRank.

python -m benchmarks.miniature [--backbone mini-qwen] [--retriever mini-colqwen] [--work DIR] [--out FILE]

The stages are those of `ridgerank reproduce`; here all queries of three corpora fit the readout that ranks
the fourth, separately for each pair of models. Weights are read on the next corpus. Results stay in --work:
run it again to continue.

Recovery is that of the paper's table 4: the share of the gain over the retriever, of the full cross encoder
fused with the retriever at its own weight, that is kept. Times are in table 4 of `ridgerank reproduce`.
"""

import argparse
import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.report import publish
from experiments.datasets.base import Benchmark
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
NEVER_TIMED = 1 << 30
"""Full passes are timed on the first query only, which the stage of the states asks for."""
DEFINITION = (
    "percent of the fused full cross encoder's gain over the retriever, each fused at its own weight read on "
    "the next corpus; label free: at the weight read without judgements"
)
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
    families = load_first_family(arguments.work)
    rows = []
    for backbone in arguments.backbone or BACKBONES:
        settings = settings_for([backbone], arguments.retriever or RETRIEVERS, families, arguments.keep)
        with Bar() as bar:
            analysis = Analysis(Experiment(settings, stages_folder(arguments.work, arguments.keep), bar))
            for retriever in settings.retrievers:
                rows.append(measure(analysis, backbone, retriever))
                show(rows[-1])
    publish(
        {
            "candidates": 20,
            "family": FAMILY,
            "keep": arguments.keep,
            "recovery": DEFINITION,
            "pairs": rows,
        },
        arguments.out,
    )


def measure(
    analysis: Analysis, backbone: str, retriever: str, *, teacher: str | None = None
) -> dict[str, Any]:
    """All figures of one backbone behind one retriever; the margins are a teacher's where one is named."""
    corpus_keys = analysis.experiment.corpus_keys(0)
    corpora = [analysis.scored(corpus_key, retriever, backbone) for corpus_key in corpus_keys]
    if teacher is not None:
        corpora = [
            replace(scored, margins=analysis.experiment.margins(corpus_key, teacher, retriever).ravel())
            for corpus_key, scored in zip(corpus_keys, corpora, strict=True)
        ]
    held_out, choice = hold_out_each(corpora)
    return _figures(backbone, retriever, held_out, dict(choice.chosen))


def settings_for(
    backbones: Sequence[str], retrievers: Sequence[str], families: Sequence[Benchmark], keep: str
) -> ExperimentSettings:
    """The settings of these models on the drawn corpora."""
    return ExperimentSettings(
        families=tuple(families),
        backbones=tuple(backbones),
        retrievers=tuple(retrievers),
        baselines="miniature",
        device="cpu",
        keep=Keep.parse(keep),
        depths=(),
        full_pass_every=NEVER_TIMED,
    )


def load_first_family(work: Path) -> list[Benchmark]:
    """The corpora of the first family, drawn where they are missing."""
    names = frozenset(plan.name for plan in PLANS if plan.family == FAMILY)
    return load_miniature(work / "corpora", corpora=names)


def stages_folder(work: Path, keep: str) -> Path:
    """Where the stages of one rule of kept positions lie."""
    return work / keep.replace("/", "-") / "stages"


def _figures(
    backbone: str, retriever: str, held_out: list[HeldOutCorpus], penalties: dict[str, float]
) -> dict[str, Any]:
    by_corpus = {
        each.scored.corpus: {name: float(values.mean()) for name, values in each.ndcg_by_method().items()}
        for each in held_out
    }
    methods = list(next(iter(by_corpus.values())))
    means = {method: statistics.mean(ndcg[method] for ndcg in by_corpus.values()) for method in methods}

    def recovered(method: str) -> float:
        return round(recovery(means["retriever"], means[method], means["cross encoder, fused"]), 1)

    return {
        "backbone": Path(backbone).name,
        "retriever": Path(retriever).name,
        "ndcg_at_5": {method: round(value, 2) for method, value in means.items()},
        "recovery_percent": recovered("ridgerank"),
        "recovery_label_free_percent": recovered("ridgerank, label free"),
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
    judged, label_free = row["recovery_percent"], row["recovery_label_free_percent"]
    console.print(f"recovery {judged} %, label free {label_free} %: {DEFINITION}")


if __name__ == "__main__":
    main()
