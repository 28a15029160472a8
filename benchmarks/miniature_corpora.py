"""The twelve corpora: their sizes, how well counting words ranks them, and how fast pages are drawn.

python -m benchmarks.miniature_corpora [--out results/miniature/corpora.json]
"""

import argparse
import time
from itertools import islice
from pathlib import Path
from statistics import mean

from benchmarks.report import publish
from experiments.miniature_training.counting import counting_run
from experiments.miniature_training.render import render
from experiments.miniature_training.training_pages import training_pages
from ridgerank.evaluation.metrics import evaluate
from ridgerank.miniature.corpora import PLANS, Corpus, CorpusPlan, make_corpus

TIE_BREAKS = 5


def main() -> None:
    """Make every corpus, rank it by counting words, and time the way from a plan to an image."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--pages", type=int, default=512, help="training pages to render")
    arguments = parser.parse_args()
    print(f"{'corpus':10} family documents pages queries grade-2 grade-1 nDCG@5 R@20 of counting words")
    corpora = {plan.name: measure(plan, make_corpus(plan)) for plan in PLANS}
    start = time.perf_counter()
    render(list(islice(training_pages(0), arguments.pages)))
    pages_per_s = arguments.pages / (time.perf_counter() - start)
    print(f"training pages planned, drawn and rendered: {pages_per_s:.0f} a second on one core")
    publish({"corpora": corpora, "training_pages_per_s": round(pages_per_s, 1)}, arguments.out)


def measure(plan: CorpusPlan, corpus: Corpus) -> dict[str, float]:
    """Sizes of one corpus and the quality of counting words on it, over five ways to break ties."""
    runs = [
        evaluate(counting_run(corpus, seed=seed), corpus.qrels(), ("nDCG@5", "R@20")).means()
        for seed in range(TIE_BREAKS)
    ]
    facts = {
        "family": plan.family,
        "documents": len(corpus.documents),
        "pages": len(corpus.pages()),
        "queries": len(corpus.questions),
        "answers_per_query": round(mean(list(each.values()).count(2) for each in corpus.grades), 2),
        "partial_answers_per_query": round(mean(list(each.values()).count(1) for each in corpus.grades), 2),
        "counting_ndcg_at_5": round(mean(run["nDCG@5"] for run in runs), 2),
        "counting_recall_at_20": round(mean(run["R@20"] for run in runs), 2),
    }
    print(f"{corpus.name:10}", *(f"{value:>7}" for value in facts.values()))
    return facts


if __name__ == "__main__":
    main()
