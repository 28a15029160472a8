"""What a store in a bucket is asked for: requests and bytes of opening it and of each query.

    python -m benchmarks.object_store --out results/object_store.json

An S3 server on loopback that counts (`loopback_s3.py`), 256 pages of the embedded model in the preset
`small`, 20 candidates a query, drawn at random, or neighbours: 20 pages in a row, as of one document. Counts
are exact and the same on any machine; times are left out, since the server runs in this very process.
`listed` is a small store, whose pages are listed once; `indexed` has indices over ids and names.
"""

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.loopback_s3 import BUCKET, LoopbackS3, Traffic, loopback_s3
from benchmarks.report import publish
from benchmarks.synthetic import any_calibration, encode_originals, page_id, write_store
from ridgerank.backbones.base import Backbone
from ridgerank.backbones.load import load_backbone
from ridgerank.calibration.artifact import Calibration
from ridgerank.ranking.reranker import Reranker
from ridgerank.ranking.shallow import ShallowPass
from ridgerank.store import prefix_readers
from ridgerank.store.disk_cache import DiskCache
from ridgerank.store.page_store import PageStore
from ridgerank.store.sidecar import edit_calibrations
from ridgerank.store.store_writer import StoreWriter
from ridgerank.store.vector_columns import VectorOrigin

PAGES, CANDIDATES, QUERIES = 256, 20, 5
QUERY = "which region had the highest share"


def main() -> None:
    """Measure, print a table, then one line of JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    backbone = load_backbone("mini-qwen", device="cpu")
    copied = encode_originals(backbone, "small")
    lineage = copied.lineage
    calibration = any_calibration(lineage, backbone.geometry.width, "any")
    origin = VectorOrigin("any", "f", 32, 1)
    result: dict[str, Any] = {"pages": PAGES, "candidates": CANDIDATES, "preset": "small"}
    with loopback_s3() as s3:
        for kind in ("listed", "indexed"):
            uri = f"s3://{BUCKET}/{kind}"
            write_store(uri, copied, PAGES, origin=origin, vectors=1)
            if kind == "indexed":
                with StoreWriter(uri, lineage) as writer:
                    writer.index_pages()
            with edit_calibrations(uri) as folder:
                calibration.save(folder)
            result[kind] = measure(uri, s3, backbone, calibration)
    for kind in ("listed", "indexed"):
        for what, traffic in result[kind].items():
            if isinstance(traffic, dict):
                print(
                    f"{kind:8} {what:32} {traffic['requests']:6.1f} requests {traffic['megabytes']:8.3f} MB"
                )
    publish(result, options.out)


def measure(uri: str, s3: LoopbackS3, backbone: Backbone, calibration: Calibration) -> dict[str, Any]:
    """Traffic of opening, of the first query, and of later ones by what is cached."""
    chance = np.random.default_rng(0)
    lists = [chance.choice(PAGES, CANDIDATES, replace=False).tolist() for _ in range(QUERIES + 1)]
    rows: dict[str, Any] = {}
    with s3.counted() as traffic:
        reranker = Reranker.open(uri, backbone=backbone, cache_bytes=0)
        rows["opening"] = _row([traffic()])
    with reranker:
        rows["first query"], rows["later query"] = _query_traffic(reranker, lists, s3)
        rows["prefix_megabytes_a_query"] = round(
            reranker.store.prefix_nbytes([page_id(number) for number in lists[0]]) / 1e6, 3
        )
        with s3.counted() as traffic:
            reranker.rank(QUERY, [(page_id(number), 1.0) for number in range(100, 100 + CANDIDATES)])
            rows["later query, neighbours"] = _row([traffic()])
        ids = [page_id(number) for number in lists[0]]
        reranker.store.blocks = prefix_readers.LanceBlockReader(reranker.store._dataset)
        with s3.counted() as traffic:
            reranker.store.read_prefixes(ids)
            rows["later query, Lance's blobs"] = _row([traffic()])
    with tempfile.TemporaryDirectory() as folder:
        disk = DiskCache(Path(folder), capacity_bytes=1 << 30)
        with PageStore.open(uri, disk=disk) as store:
            cached = Reranker(ShallowPass(backbone, store, cache_bytes=0), calibration)
            _query_traffic(cached, lists, s3)
            rows["query seen before, cache on disk"] = _query_traffic(cached, lists, s3)[1]
    return rows


def _query_traffic(reranker: Reranker, lists: Sequence[Sequence[int]], s3: LoopbackS3) -> tuple[Any, Any]:
    """Traffic of the first query, and the mean of those after it."""
    seen: list[Traffic] = []
    for numbers in lists:
        with s3.counted() as traffic:
            reranker.rank(QUERY, [(page_id(number), float(number)) for number in numbers])
            seen.append(traffic())
    return _row(seen[:1]), _row(seen[1:])


def _row(seen: Sequence[Traffic]) -> dict[str, float]:
    return {
        "requests": round(sum(each.requests for each in seen) / len(seen), 2),
        "megabytes": round(sum(each.nbytes for each in seen) / len(seen) / 1e6, 4),
    }


if __name__ == "__main__":
    main()
