"""Other ways to make a page smaller, tried on the miniatures, beside what is built.

    python -m benchmarks.compression_trials [--backbone mini-qwen] [--work DIR]
        [--out results/compression_trials.json]

Corpora, protocol and figures are those of `compression`. A page is encoded once and changed in memory into
what a store of that kind would give back (`page_trials.py`). Reference queries, where a trial looks at any,
are 16 of the next corpus: a store has its calibration queries, not those to come.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.compression import drawn_experiment, rank_quality
from benchmarks.page_trials import TRIALS, PageTrial
from benchmarks.report import publish
from experiments.protocols.scored_corpus import ScoredCorpus
from experiments.reproduce.analysis import Analysis
from experiments.reproduce.corpus_key import CorpusKey
from experiments.reproduce.experiment import Experiment
from ridgerank.backbones.dense_prefixes import DensePrefixes
from ridgerank.cli.progress_bars import Bar
from ridgerank.ragged import Floats
from ridgerank.shipped_models import BACKBONES
from ridgerank.store.page_store import PageStore
from ridgerank.store.rerender import rerender_pages

REFERENCES = 16


def run_corpus(
    experiment: Experiment,
    corpus_key: CorpusKey,
    backbone: str,
    references: Sequence[str],
    names: Sequence[str],
) -> dict[str, Floats]:
    """States (queries × candidates, dim) by trial."""
    [retriever] = experiment.settings.retrievers
    folder, corpus = experiment.paths(corpus_key).backbone(backbone), experiment.corpus(corpus_key)
    model = experiment.models.backbone_for(folder, backbone)
    page_ids = experiment.pools(corpus_key, retriever).page_ids[:, : experiment.settings.candidates]
    unique = np.unique(page_ids).tolist()
    states: dict[str, Floats] = {}
    experiment.progress.start(f"{corpus.name}: {len(names)} trials", len(unique))
    with PageStore.open(experiment.paths(corpus_key).store(backbone)) as store, torch.inference_mode():
        for batch in rerender_pages(store, unique, max_pixels=model.page_budget):
            for page in batch:
                [prefix] = model.encode([model.content(page)], exit_layer=experiment.models.exit_layer(model))
                trial = PageTrial(model, prefix, references)
                members = np.argwhere(page_ids == page.page_id)
                texts = [corpus.queries[number].text for number in members[:, 0]]
                for name in names:
                    of_page = model.states(texts, DensePrefixes([TRIALS[name](trial)])).numpy()
                    of_trial = states.setdefault(name, np.zeros((*page_ids.shape, of_page.shape[-1])))
                    of_trial[tuple(members.T)] = of_page
                experiment.progress.advance(1)
    return {name: of_trial.reshape(-1, of_trial.shape[-1]) for name, of_trial in states.items()}


def measure(experiment: Experiment, backbone: str, names: Sequence[str]) -> list[dict[str, Any]]:
    """One row for each trial."""
    [retriever] = experiment.settings.retrievers
    analysis, keys = Analysis(experiment), experiment.corpus_keys(0)
    queries = [[query.text for query in experiment.corpus(key).queries] for key in keys]
    corpora: dict[str, list[ScoredCorpus]] = {name: [] for name in names}
    for number, corpus_key in enumerate(keys):
        scored = analysis.scored(corpus_key, retriever, backbone)
        references = queries[(number + 1) % len(keys)][:REFERENCES]
        states = run_corpus(experiment, corpus_key, backbone, references, names)
        for name in names:
            corpora[name].append(replace(scored, states=states[name]))
    return [{"backbone": backbone, "trial": name, **rank_quality(corpora[name])} for name in names]


def show(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print the rows as a table."""
    for row in rows:
        print(
            f"{row['backbone']:10} {row['trial']:36} r {row['agreement']:.3f}  "
            f"nDCG@5 {row['ndcg_at_5']:.2f}  recovery {row['recovery_percent']:.1f} %"
        )


def main() -> None:
    """Measure every trial, print a table, then one line of JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--backbone", action="append", choices=BACKBONES, help="both unless given")
    parser.add_argument("--trial", action="append", choices=list(TRIALS), help="all unless given")
    parser.add_argument("--work", type=Path, default=Path("build/compression"))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for backbone in options.backbone or BACKBONES:
        with Bar() as bar:
            experiment = drawn_experiment(options.work, backbone, bar)
            rows += measure(experiment, backbone, options.trial or list(TRIALS))
    show(rows)
    publish({"references": REFERENCES, "rows": rows}, options.out)


if __name__ == "__main__":
    main()
