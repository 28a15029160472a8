"""A trained model as a cross encoder: the best 20 pages of counting words, ranked again by its margins.

Before that, the share of words that its vision tower reads.

python -m benchmarks.miniature_models --model DIR [--corpus alder] [--out results/miniature/models.json]
"""

import argparse
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from transformers import AutoConfig, AutoTokenizer

from benchmarks.report import publish
from experiments.miniature_training.counting import counting_run
from experiments.miniature_training.reading_lesson import CellReader
from experiments.miniature_training.render import render
from experiments.miniature_training.trainable_model import TrainableModel
from ridgerank.backbones.base import Backbone
from ridgerank.backbones.dense_prefixes import DensePrefixes
from ridgerank.backbones.load import FAMILIES, load_backbone
from ridgerank.backbones.mrope import GridBackbone
from ridgerank.backbones.prefix import Prefix
from ridgerank.evaluation.metrics import evaluate
from ridgerank.miniature.corpora import NAMES, Corpus, find_plan, make_corpus
from ridgerank.ragged import Floats
from ridgerank.runs.run import Run

CANDIDATES = 20
PAGES_AT_ONCE = 16


def main() -> None:
    """Rank corpora again with a model, and print nDCG@5 of each, by kind of question."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--corpus", action="append", choices=NAMES, help="one or more; alder by default")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    backbone = load_backbone(arguments.model)
    reader = load_reader(arguments.model)
    figures = {
        name: {"words read": words_read(reader, name)} | measure(backbone, name)
        for name in arguments.corpus or ["alder"]
    }
    publish({"model": arguments.model.name, "corpora": figures}, arguments.out)


def load_reader(folder: Path) -> CellReader:
    """The vision tower of a model, compared with its embeddings."""
    family = FAMILIES[AutoConfig.from_pretrained(folder).model_type]
    assert issubclass(family, GridBackbone)
    model = family.model_class.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    image_processor = family.image_processor_class.from_pretrained(folder)
    return CellReader(TrainableModel(model, tokenizer, image_processor, family))


def words_read(reader: CellReader, name: str) -> float:
    """Percent of the cells with a word, on all pages of a corpus, that the vision tower names rightly."""
    pages = list(make_corpus(find_plan(name)).pages().values())
    shares: list[float] = []
    cells: list[int] = []
    with torch.inference_mode():
        for start in range(0, len(pages), PAGES_AT_ONCE):
            batch = pages[start : start + PAGES_AT_ONCE]
            shares.append(reader.grade(reader.features(batch), batch).words)
            cells.append(sum(placed.width_cells for page in batch for placed in page.words))
    share = round(100 * float(np.average(shares, weights=cells)), 2)
    print(f"{name}: {share} % of words read")
    return share


def measure(backbone: Backbone, name: str) -> dict[str, float]:
    """The figures of one corpus: counting words, the model, the best possible, the model by kind."""
    corpus = make_corpus(find_plan(name))
    candidates = counting_run(corpus).top(CANDIDATES).to_dict()
    best = {
        query: {page: float(grades.get(page, 0)) for page in candidates[query]}
        for query, grades in corpus.qrels().items()
    }
    start = time.perf_counter()
    ranked = Run.of_dict(rank(backbone, corpus, candidates))
    seconds = time.perf_counter() - start
    figures = {
        "counting": ndcg_at_5(Run.of_dict(candidates), corpus).mean(),
        "model": ndcg_at_5(ranked, corpus).mean(),
        "best": ndcg_at_5(Run.of_dict(best), corpus).mean(),
    }
    kinds = np.array([question.kind for question in corpus.questions])
    figures |= {
        f"model, {kind}": ndcg_at_5(ranked, corpus)[kinds == kind].mean() for kind in np.unique(kinds)
    }
    rounded = {key: round(float(value), 2) for key, value in figures.items()}
    print(f"{name}: nDCG@5 {rounded}, {seconds:.0f} s")
    return rounded


def rank(
    backbone: Backbone, corpus: Corpus, candidates: Mapping[str, Mapping[str, float]]
) -> dict[str, dict[str, float]]:
    """Query id → page → margin at full depth; every page is encoded once."""
    pages = corpus.pages()
    needed = sorted({page for scored in candidates.values() for page in scored})
    prefixes: dict[str, Prefix] = {}
    for start in range(0, len(needed), PAGES_AT_ONCE):
        names = needed[start : start + PAGES_AT_ONCE]
        images = render([pages[name] for name in names])
        encoded = backbone.encode(images, exit_layer=backbone.geometry.layers)
        prefixes |= zip(names, encoded, strict=True)
    margins: dict[str, dict[str, float]] = {}
    for number, question in enumerate(corpus.questions):
        query = corpus.query_id(number)
        names = list(candidates[query])
        states = backbone.states([question.text], DensePrefixes([prefixes[name] for name in names]))
        margins[query] = dict(zip(names, backbone.logit_lens(states).tolist(), strict=True))
    return margins


def ndcg_at_5(run: Run, corpus: Corpus) -> Floats:
    """(queries,) in percent, in the order of the corpus."""
    return evaluate(run, corpus.qrels(), ("nDCG@5",)).of("nDCG@5")


if __name__ == "__main__":
    main()
