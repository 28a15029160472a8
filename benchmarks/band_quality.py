"""What a band of layers costs in ranking: pages joined at a later layer, on the miniature's first corpora.

    python -m benchmarks.band_quality --out results/miniature/band.json

Below the join layer the query runs alone, which is faster and smaller. The measure is that of
`benchmarks.miniature`: each corpus is ranked by a readout fitted on the other three at a weight read on the
next one; recovery is of the full cross encoder fused at its own weight. Results stay in --work.
"""

import argparse
from pathlib import Path

from benchmarks.miniature import FAMILY, NEVER_TIMED, measure
from benchmarks.report import publish
from experiments.datasets.drawn_corpora import load_miniature
from experiments.reproduce.analysis import Analysis
from experiments.reproduce.experiment import Experiment
from experiments.reproduce.settings import ExperimentSettings
from ridgerank.cli.progress_bars import Bar
from ridgerank.miniature.corpora import PLANS
from ridgerank.shipped_models import BACKBONES, RETRIEVERS

EXIT_LAYER = 6
JOIN_LAYERS = (0, 2, 4)
"""None, a third and two thirds of the layers below the exit."""


def main() -> None:
    """Measure every join layer, print a line of each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", type=Path, default=Path("build/band"))
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    backbone, retriever = BACKBONES[0], RETRIEVERS[0]
    names = frozenset(plan.name for plan in PLANS if plan.family == FAMILY)
    families = tuple(load_miniature(arguments.work / "corpora", corpora=names))
    rows = []
    for join_layer in JOIN_LAYERS:
        settings = ExperimentSettings(
            families=families,
            backbones=(backbone,),
            retrievers=(retriever,),
            baselines="miniature",
            device="cpu",
            exit_layer=EXIT_LAYER,
            join_layer=join_layer,
            depths=(),
            full_pass_every=NEVER_TIMED,
        )
        with Bar() as bar:
            experiment = Experiment(settings, arguments.work / f"join-{join_layer}", bar)
            figures = measure(Analysis(experiment), backbone, retriever)
        rows.append(
            {
                "join_layer": join_layer,
                "exit_layer": EXIT_LAYER,
                "ndcg_at_5": figures["ndcg_at_5"]["ridgerank"],
                "recovery_percent": figures["recovery_percent"],
            }
        )
        print(
            f"joined at layer {join_layer} of {EXIT_LAYER}: nDCG@5 {rows[-1]['ndcg_at_5']:.1f}, "
            f"recovery {rows[-1]['recovery_percent']:.1f} %"
        )
    publish({"backbone": backbone, "retriever": retriever, "rows": rows}, arguments.out)


if __name__ == "__main__":
    main()
