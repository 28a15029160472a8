"""What ranking costs beside the model: reading out, standardizing, fusing and sorting 20 candidates.

    python -m benchmarks.rank_overhead --out results/rank_overhead.json

A random Qwen2.5-VL of 28 layers, pages of 768 visual positions of which a third is kept, exit layer 21, 20
candidates, prefixes in memory: the share of a request's time that is no model, at its least favourable, since
a larger model only makes the share smaller.
"""

import argparse
import statistics
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks.report import publish
from benchmarks.small_qwen import small_qwen
from ridgerank.calibration.artifact import Calibration, Diagnostics
from ridgerank.fusion.estimate import user_estimate
from ridgerank.ranking.reranker import Reranker
from ridgerank.ranking.shallow import ShallowPass
from ridgerank.readout.readout import Readout
from ridgerank.store.compress import compress
from ridgerank.store.model_lineage import make_lineage
from ridgerank.store.page_store import PageStore
from ridgerank.store.pruning import Keep
from ridgerank.store.rows import PageRow, StoredPage
from ridgerank.store.store_writer import StoreWriter

PAGES, EXIT_LAYER, WIDTH = 20, 21, 512
PAGE_SIZE = (896, 672)
BAR = 0.01
"""Share of a request that ranking may take."""


def main() -> None:
    """Measure, print a line, then one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="also write the JSON here")
    parser.add_argument("--requests", type=int, default=15)
    options = parser.parse_args()
    backbone, _ = small_qwen(layers=28, width=WIDTH, head_dim=128, max_pixels=896 * 672)
    lineage = make_lineage(backbone, exit_layer=EXIT_LAYER, join_layer=0, keep=Keep())
    generator = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        with StoreWriter(folder, lineage) as writer:
            for number in range(PAGES):
                pixels = generator.integers(0, 256, (PAGE_SIZE[1], PAGE_SIZE[0], 3), dtype=np.uint8)
                image = Image.fromarray(pixels)
                [prefix] = backbone.encode([image], exit_layer=EXIT_LAYER)
                page = StoredPage(f"{number:064}", (f"page.pdf#{number}",), "page.pdf", "", b"")
                writer.append([PageRow(page, compress(prefix, image, Keep()))])
        unknown = float("nan")
        readout = Readout(generator.normal(size=WIDTH), 1.0, 0, 0, lineage)
        weight = user_estimate(0.5)
        facts = Diagnostics(
            "", 0, 0, PAGES, 0, (), {}, {}, False,
            unknown, (0, 1), unknown, unknown, unknown, weight, None, (),
        )  # fmt: skip
        calibration = Calibration(readout, weight, "given", "given", facts)
        shares = []
        with Reranker(ShallowPass(backbone, PageStore.open(folder)), calibration) as reranker:
            for number in range(options.requests + 1):
                scores = generator.normal(size=PAGES).tolist()
                candidates = [(f"page.pdf#{number}", score) for number, score in enumerate(scores)]
                times = reranker.rank(f"what was the revenue in year {number}", candidates).latency
                total = times.retrieval_ms + times.reading_ms + times.compute_ms + times.ranking_ms
                if number:  # the first request warms up
                    shares.append((times.retrieval_ms + times.ranking_ms) / total)
    share = statistics.median(shares)
    print(f"ranking takes {100 * share:.2f} % of a request (at most {100 * BAR:.0f} % wanted)")
    publish(
        {
            "share_of_request": round(share, 5),
            "bar": BAR,
            "candidates": PAGES,
            "model": backbone.name,
            "ranking_over_request_slowest": round(max(shares), 5),
        },
        options.out,
    )


if __name__ == "__main__":
    main()
