"""What calibrating adds to indexing when both are done in one pass.

    python -m benchmarks.one_pass --out results/one_pass.json

A random Qwen2.5-VL of 28 layers, exit layer 21, drawn PDF pages of some 300 visual positions, queries made
from their text, BM25. The default is 300 pages, 32 queries, 20 candidates each; the options
make it smaller. Indexing alone and indexing with calibration take turns.
"""

import argparse
import random
import statistics
import tempfile
import time
from pathlib import Path

from reportlab.pdfgen.canvas import Canvas

from benchmarks.report import publish
from benchmarks.small_qwen import small_qwen
from ridgerank.backbones.base import Backbone
from ridgerank.calibration.calibrate import CalibrationPlan, CalibrationRequest, calibrate
from ridgerank.calibration.onepass import OnePass
from ridgerank.documents.outcomes import Failure
from ridgerank.indexing import IndexPlan, index_documents
from ridgerank.retrievers.bm25 import BM25
from ridgerank.store.read import PageStore

BAR = 1.3
_WORDS = [
    "margin",
    "revenue",
    "growth",
    "cost",
    "energy",
    "water",
    "staff",
    "safety",
    "audit",
    "risk",
    "patent",
    "market",
    "client",
    "price",
    "debt",
]


class Silent:
    """Looks on and says nothing."""

    def planned(self, plan: IndexPlan) -> None:
        """Say nothing."""

    def committed(self, pages: int, nbytes: int) -> None:
        """Say nothing."""

    def failed(self, failure: Failure) -> None:
        """Say nothing."""

    def calibrating(self, plan: CalibrationPlan) -> None:
        """Make sure that it is one pass."""
        if plan.unseen:
            raise SystemExit(f"{plan.unseen} pages were not foreseen")

    def taught(self, pages: int) -> None:
        """Say nothing."""

    def asked(self, queries: int) -> None:
        """Say nothing."""


def draw(folder: Path, pages: int) -> None:
    """One PDF of pages with a title and some sentences each."""
    pick = random.Random(0).choice
    canvas = Canvas(str(folder / "report.pdf"), (595, 842), invariant=1)
    for number in range(pages):
        lines = [f"Report {number} on {pick(_WORDS)} and {pick(_WORDS)}"]
        lines += [
            f"The {pick(_WORDS)} follows the {pick(_WORDS)} of {pick(_WORDS)} {pick(_WORDS)}"
            for _ in range(20)
        ]
        for place, line in enumerate(lines):
            canvas.drawString(60, 780 - 30 * place, line)
        canvas.showPage()
    canvas.save()


def seconds(folder: Path, backbone: Backbone, request: CalibrationRequest | None) -> float:
    """Index into a new store, calibrating on the way where asked to."""
    with tempfile.TemporaryDirectory() as store:
        start = time.perf_counter()
        onlooker = None if request is None else OnePass(store, backbone, request, BM25)
        index_documents([folder], store, backbone, watcher=Silent(), processes=1, onlooker=onlooker)
        if request is not None:
            with PageStore.open(store) as opened:
                calibrate(opened, backbone, BM25(opened), request, watcher=Silent())
        return time.perf_counter() - start


def main() -> None:
    """Measure, print a line, then one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="also write the JSON here")
    parser.add_argument("--pages", type=int, default=300)
    parser.add_argument("--queries", type=int, default=32)
    parser.add_argument("--candidates", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    backbone, _ = small_qwen(layers=28, width=256, head_dim=64, max_pixels=300 * 28 * 28)
    request = CalibrationRequest(count=options.queries, candidates=options.candidates)
    ratios = []
    with tempfile.TemporaryDirectory() as folder:
        draw(Path(folder), options.pages)
        for _ in range(options.rounds):
            alone = seconds(Path(folder), backbone, None)
            ratios.append(seconds(Path(folder), backbone, request) / alone)
    ratio = statistics.median(ratios)
    print(f"index with calibration takes {ratio:.2f} times as long as index alone (at most {BAR} wanted)")
    publish(
        {
            "time_over_index_alone": round(ratio, 3),
            "rounds": [round(one, 3) for one in ratios],
            "bar": BAR,
            "pages": options.pages,
            "queries": options.queries,
            "candidates": options.candidates,
        },
        options.out,
    )


if __name__ == "__main__":
    main()
