"""What grows with a store: latency of a request, opening, memory, retrieval.

    python -m benchmarks.growth --out results/growth.json [--folder /large/disk]

Stores of 1,000, 10,000 and 100,000 pages of the embedded model, 64 pages to a commit, as `ridgerank index`
leaves them, in its preset `small`. Requests to the three take turns in one process, so that a busy machine is
busy for all; nothing is cached by us: each reads its 20 prefixes. Candidates come from 400 pages strewn over
each store (equal traffic), or from all of its pages (mostly never seen before, neither by us nor by the
system). Memory is what a fresh process holds for itself (RssAnon) above a model that is loaded.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.report import interleaved_times, publish
from benchmarks.synthetic import any_calibration, encode_originals, folder_bytes, page_id, write_store
from ridgerank.backbones.base import Backbone
from ridgerank.backbones.load import load_backbone
from ridgerank.indexing.index import MIN_INDEXED_PAGES
from ridgerank.lineage import Lineage
from ridgerank.ranking.reranker import Reranker
from ridgerank.ranking.shallow import ShallowPass
from ridgerank.retrievers.encoders.base import MultiVectorEncoder
from ridgerank.retrievers.encoders.load import load_encoder
from ridgerank.retrievers.late_interaction import LateInteraction
from ridgerank.store.page_store import PageStore
from ridgerank.store.storage_setting import StoragePreset, parse_storage_preset
from ridgerank.store.store_writer import StoreWriter

SIZES = (1_000, 10_000, 100_000)
CANDIDATES, WARM_PAGES, VECTORS = 20, 400, 4
QUERY = "which region had the highest share"
LATENCY_BAR, OPEN_BAR_S = 1.1, 1.0


def main() -> None:
    """Build, measure, remove, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path)
    parser.add_argument("--folder", type=Path, help="where the stores may lie meanwhile: about 6 GB")
    parser.add_argument("--preset", default="small", type=parse_storage_preset, help="small or paper")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--requests", type=int, default=61)
    parser.add_argument("--opened", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.opened:
        print(json.dumps(measure_opened_store(options.opened)))
        return
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        result = measure(folder, options.sizes, options.preset, options.requests)
    show(result)
    publish(result, options.out)


def measure(folder: str, sizes: Sequence[int], preset: StoragePreset, requests: int) -> dict[str, Any]:
    """Write stores of these sizes, search and rerank in each."""
    backbone = load_backbone("mini-qwen", device="cpu")
    encoder = load_encoder("mini-colqwen", device="cpu")
    uris = {pages: f"{folder}/{pages}" for pages in sizes}
    large = {pages: uri for pages, uri in uris.items() if pages >= MIN_INDEXED_PAGES}
    lineage = write_stores(uris, backbone, encoder, preset)
    print("searching", flush=True)
    retrieval = {"exact": retrieval_ms(uris, encoder)}
    for uri in large.values():
        with StoreWriter(uri, lineage) as writer:
            writer.index_vectors()
    print("searching with an index", flush=True)
    retrieval["indexed"] = retrieval_ms(large, encoder)
    print("reranking", flush=True)
    latency = rerank_ms(uris, backbone, lineage, requests)
    opened = {str(pages): child(uri) for pages, uri in uris.items()}
    first, last = str(sizes[0]), str(sizes[-1])
    return {
        "pages": list(sizes),
        "preset": preset,
        "candidates": CANDIDATES,
        "rerank_p50_ms": latency,
        "rerank_p50_last_over_first": {
            traffic: round(by_pages[last] / by_pages[first], 3) for traffic, by_pages in latency.items()
        },
        "open_s": {pages: measured["open_s"] for pages, measured in opened.items()},
        "memory_above_model_mib": {pages: measured["above_model_mib"] for pages, measured in opened.items()},
        "retrieval_p50_ms": retrieval,
        "vectors_a_page": VECTORS,
        "bars": {"rerank_p50_last_over_first": LATENCY_BAR, "open_s": OPEN_BAR_S},
    }


def write_stores(
    uris: Mapping[int, str], backbone: Backbone, encoder: MultiVectorEncoder, preset: StoragePreset
) -> Lineage:
    """Stores of so many copied pages each, large ones with Lance's indices over their pages."""
    copied = encode_originals(backbone, preset)
    for pages, uri in uris.items():
        began = time.perf_counter()
        write_store(uri, copied, pages, origin=encoder.origin, vectors=VECTORS)
        with StoreWriter(uri, copied.lineage) as writer:
            if pages >= MIN_INDEXED_PAGES:
                writer.index_pages()
        size, seconds = folder_bytes(Path(uri)) / 1e9, time.perf_counter() - began
        print(f"{pages:7} pages, {size:.2f} GB, written in {seconds:.0f} s", flush=True)
    return copied.lineage


def rerank_ms(
    uris: Mapping[int, str], backbone: Backbone, lineage: Lineage, requests: int
) -> dict[str, dict[str, float]]:
    """Median milliseconds of `Reranker.rank`, by traffic and pages; the stores take turns."""
    calibration = any_calibration(lineage, backbone.geometry.width, "any")
    medians: dict[str, dict[str, float]] = {}
    with ExitStack() as opened:
        rerankers = {}
        for pages, uri in uris.items():
            shallow = ShallowPass(backbone, opened.enter_context(PageStore.open(uri)), cache_bytes=0)
            rerankers[pages] = Reranker(shallow, calibration)
        for traffic in ("equal", "uniform"):
            chance = np.random.default_rng(2)
            drawn = {pages: chance.choice(pages, min(WARM_PAGES, pages), replace=False) for pages in uris}

            if traffic == "equal":
                for pages, reranker in rerankers.items():
                    reranker.store.read_prefixes([page_id(number) for number in drawn[pages].tolist()])
            searches = {
                str(pages): partial(
                    _ask, reranker, drawn[pages] if traffic == "equal" else np.arange(pages), chance
                )
                for pages, reranker in rerankers.items()
            }
            times = interleaved_times(searches, repeats=requests)
            medians[traffic] = {name: round(1e3 * statistics.median(runs), 2) for name, runs in times.items()}
    return medians


def _ask(reranker: Reranker, numbers: NDArray[np.int64], chance: np.random.Generator) -> None:
    chosen = chance.choice(numbers, CANDIDATES, replace=False).tolist()
    reranker.rank(QUERY, [(page_id(number), float(number)) for number in chosen])


def retrieval_ms(uris: Mapping[int, str], encoder: MultiVectorEncoder) -> dict[str, float]:
    """Median milliseconds of a search for twenty pages, after a first one."""
    with ExitStack() as opened:
        retrievers = {
            str(pages): LateInteraction(encoder, opened.enter_context(PageStore.open(uri)))
            for pages, uri in uris.items()
        }
        for retriever in retrievers.values():
            retriever.search(QUERY, CANDIDATES)
        searches = {
            name: (lambda retriever=retriever: retriever.search(QUERY, CANDIDATES))
            for name, retriever in retrievers.items()
        }
        times = interleaved_times(searches, repeats=11)
    return {name: round(1e3 * statistics.median(runs), 2) for name, runs in times.items()}


def child(uri: str) -> dict[str, float]:
    """`measure_opened_store` in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.growth", "--opened", uri]
    answer = subprocess.run(command, check=True, capture_output=True, text=True)
    measured: dict[str, float] = json.loads(answer.stdout.splitlines()[-1])
    return measured


def measure_opened_store(uri: str) -> dict[str, float]:
    """Seconds to open a store and find a first page; memory after a hundred requests, above the model's."""
    backbone = load_backbone("mini-qwen", device="cpu")
    pages = int(Path(uri).name)
    chance = np.random.default_rng(3)
    before = None
    with PageStore.open(uri) as store:  # the first use of Lance loads its library
        store.lineage.to_json()
    began = time.perf_counter()
    with PageStore.open(uri, mapped=False) as store:
        store.reference(page_id(pages // 2))
        open_s = time.perf_counter() - began
        shallow = ShallowPass(backbone, store, cache_bytes=0)
        for number in range(101):
            chosen = chance.choice(pages, CANDIDATES, replace=False).tolist()
            shallow.run(QUERY, [page_id(each) for each in chosen])
            before = _anonymous_mib() if number == 0 else before
        after = _anonymous_mib()
    return {"open_s": round(open_s, 3), "above_model_mib": round(after - (before or 0.0), 1)}


def _anonymous_mib() -> float:
    text = Path(f"/proc/{os.getpid()}/status").read_text()
    [line] = [line for line in text.splitlines() if line.startswith("RssAnon")]
    return int(line.split()[1]) / 1024


def show(result: dict[str, object]) -> None:
    """Print a table."""
    latency, retrieval = result["rerank_p50_ms"], result["retrieval_p50_ms"]
    assert isinstance(latency, dict)
    assert isinstance(retrieval, dict)
    titles = ("equal ms", "uniform ms", "open s", "MiB", "exact ms", "index ms")
    print(f"{'pages':>8}" + "".join(f"{title:>12}" for title in titles))
    for pages in latency["equal"]:
        print(
            f"{pages:>8}{latency['equal'][pages]:12.1f}{latency['uniform'][pages]:12.1f}"
            f"{result['open_s'][pages]:12.2f}{result['memory_above_model_mib'][pages]:12.1f}"  # type: ignore[index]
            f"{retrieval['exact'][pages]:12.1f}{retrieval['indexed'].get(pages, float('nan')):12.1f}"
        )


if __name__ == "__main__":
    main()
