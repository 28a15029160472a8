"""What calibrating adds to indexing when both are done in one pass.

    python -m benchmarks.one_pass --out results/one_pass.json

Drawn PDF pages, the embedded backbone and retriever, questions of that corpus without their judgements: what
`ridgerank index --calibrate --queries` does, by default over 300 pages, 32 queries and 20 candidates each.
Indexing alone and indexing with calibration take turns; both embed the pages for the retriever.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from benchmarks.report import publish
from ridgerank.backbones.base import Backbone
from ridgerank.backbones.load import load_backbone
from ridgerank.calibration.calibrated_index import index_and_calibrate
from ridgerank.calibration.hooks import CalibrationPlan
from ridgerank.documents.failures import Failure
from ridgerank.indexing.index import index_documents
from ridgerank.indexing.progress import IndexPlan
from ridgerank.miniature.corpora import Corpus, find_plan, make_corpus
from ridgerank.miniature.draw import draw_document
from ridgerank.records import Query
from ridgerank.retrievers.encoders.base import MultiVectorEncoder
from ridgerank.retrievers.encoders.load import load_encoder

BAR = 1.3
CORPUS = "fir"


class Silent:
    """Says nothing while pages are indexed and the store is calibrated."""

    def planned(self, plan: IndexPlan | CalibrationPlan) -> None:
        """Make sure that no page is encoded twice."""
        if isinstance(plan, CalibrationPlan) and plan.pages_to_encode:
            raise SystemExit(f"{plan.pages_to_encode} pages were not foreseen")

    def committed(self, pages: int, nbytes: int) -> None:
        """Say nothing."""

    def failed(self, failure: Failure) -> None:
        """Say nothing."""

    def targets_stored(self, pages: int) -> None:
        """Say nothing."""

    def queries_run(self, queries: int) -> None:
        """Say nothing."""


def draw(corpus: Corpus, folder: Path, pages: int) -> None:
    """The corpus' documents, one after the other, until there are `pages` pages."""
    for name, document in corpus.documents.items():
        (folder / name).write_bytes(draw_document(document[:pages]))
        pages -= min(len(document), pages)
        if not pages:
            return
    raise SystemExit(f"{corpus.name} has {pages} pages less than that")


def seconds(
    folder: Path,
    backbone: Backbone,
    encoder: MultiVectorEncoder,
    queries: list[Query] | None,
    candidates: int,
) -> float:
    """Index into a new store, and calibrate it where there are queries."""
    with tempfile.TemporaryDirectory() as store:
        start = time.perf_counter()
        if queries is None:
            index_documents([folder], store, backbone, hook=Silent(), embedder=encoder)
            return time.perf_counter() - start
        index_and_calibrate(
            [folder],
            store,
            backbone,
            encoder=encoder,
            queries=queries,
            candidates=candidates,
            index_hook=Silent(),
            calibration_hook=Silent(),
        )
        return time.perf_counter() - start


def main() -> None:
    """Measure, print a line, then one line of JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, help="also write the JSON here")
    parser.add_argument("--pages", type=int, default=300)
    parser.add_argument("--queries", type=int, default=32)
    parser.add_argument("--candidates", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--backbone", default="mini-qwen")
    parser.add_argument("--retriever", default="mini-colqwen")
    options = parser.parse_args()
    backbone = load_backbone(options.backbone, device="cpu")
    encoder = load_encoder(options.retriever, device="cpu")
    corpus = make_corpus(find_plan(CORPUS))
    questions = corpus.questions[:: len(corpus.questions) // options.queries][: options.queries]
    queries = [Query(str(number), question.text) for number, question in enumerate(questions)]
    ratios = []
    with tempfile.TemporaryDirectory() as folder:
        draw(corpus, Path(folder), options.pages)
        for _ in range(options.rounds):
            alone = seconds(Path(folder), backbone, encoder, None, options.candidates)
            calibrated = seconds(Path(folder), backbone, encoder, queries, options.candidates)
            ratios.append(calibrated / alone)
    ratio = statistics.median(ratios)
    print(f"index with calibration takes {ratio:.2f} times as long as index alone (at most {BAR} wanted)")
    publish(
        {
            "time_over_index_alone": round(ratio, 3),
            "rounds": [round(ratio, 3) for ratio in ratios],
            "bar": BAR,
            "backbone": options.backbone,
            "retriever": options.retriever,
            "pages": options.pages,
            "queries": options.queries,
            "candidates": options.candidates,
        },
        options.out,
    )


if __name__ == "__main__":
    main()
