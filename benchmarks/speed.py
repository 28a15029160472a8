"""Processor time of indexing, of a request and of the full cross encoder, against another checkout.

    python -m benchmarks.speed NAME --backbone DIR --documents DIR --queries FILE --base CHECKOUT --out FILE

Every way (the other checkout's `small` in float32, this one's in float32 and bfloat16) runs in a process of
its own, one thread, the ways in turns; the least time of a way's turns counts. A request is retrieval, with a
`--retriever`, and the pass over 20 pages in memory. The full cross encoder reads the same 20 pages. The row
of this name in `--out` is replaced.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_PAGES, _QUERIES, _REPEATS, _RESAMPLES = 20, 24, 2, 2000
WAYS = {"base": "float32", "float32": "float32", "bfloat16": "bfloat16"}
"""Way → precision; all but the first are this checkout's."""


def work(given: argparse.Namespace) -> dict[str, Any]:
    """Seconds of one way, on the checkout that PYTHONPATH leads to."""
    import numpy as np
    import torch

    from ridgerank.backbones.load import load_backbone
    from ridgerank.indexing.index import index_documents
    from ridgerank.records import Page
    from ridgerank.store.page_store import PageStore

    try:
        from ridgerank.backbones.base import full_margins
        from ridgerank.documents.render import list_pages, render_pages
        from ridgerank.retrievers.encoders import load_encoder
        from ridgerank.scoring.shallow import ShallowPass
    except ImportError:  # modules as they were called in the other checkout
        from ridgerank.backbones.full_depth import full_margins  # type: ignore[import-not-found,no-redef]
        from ridgerank.documents.pages import list_pages, render_pages  # type: ignore[import-not-found,no-redef]
        from ridgerank.ranking.shallow import ShallowPass  # type: ignore[import-not-found,no-redef]
        from ridgerank.retrievers.encoders.load import load_encoder  # type: ignore[import-not-found,no-redef]

    torch.set_num_threads(1)
    dtype = getattr(torch, given.dtype)
    backbone = load_backbone(given.backbone, device="cpu", dtype=dtype)
    documents = sorted(given.documents.glob("*.pdf"))
    start = time.process_time()
    index_documents(documents, given.store, backbone, preset="small", processes=0)
    index = time.process_time() - start
    lines = given.queries.read_text(encoding="utf-8").splitlines()[:_QUERIES]
    queries = [json.loads(line)["text"] for line in lines]
    refs = list(list_pages(documents))
    some = refs[:: max(1, len(refs) // _PAGES)][:_PAGES]
    rendered = render_pages(some, max_pixels=backbone.max_pixels)
    pages = [page for page in rendered if isinstance(page, Page)]
    retrieve: Callable[[str], object] = len
    if given.retriever:
        encoder = load_encoder(given.retriever, device="cpu")
        vectors = np.concatenate(encoder.embed_pages([page.image for page in pages]))
        vectors = np.tile(vectors.astype(np.float32), (len(refs) // len(pages) + 1, 1))
        retrieve = lambda query: vectors @ np.asarray(encoder.embed_queries([query])[0], np.float32).T  # noqa: E731
    with PageStore.open(str(given.store)) as store:
        shallow = ShallowPass(backbone, store)
        ids = [page.page_id for page in pages]
        shallow.run(queries[0], ids)

        def request(query: str) -> list[float]:
            retrieved = _least_seconds(lambda: retrieve(query))
            return [retrieved, _least_seconds(lambda: shallow.run(query, ids))]

        requests = [request(query) for query in queries]
    contents = [backbone.content(page) for page in pages]
    full = _least_seconds(lambda: full_margins(backbone, queries[0], contents))
    return {"pages": len(refs), "index": index, "requests": requests, "full": full}


def _least_seconds(run: Callable[[], object]) -> float:
    seconds = []
    for _ in range(_REPEATS):
        start = time.process_time()
        run()
        seconds.append(time.process_time() - start)
    return min(seconds)


def run_way(way: str, given: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    """One way in a process of its own."""
    root = given.base if way == "base" else Path(__file__).parents[1]
    paths = os.pathsep.join([str(root / "src"), str(root)])
    words = [sys.executable, __file__, given.name, "--dtype", WAYS[way], "--store", str(scratch / way)]
    for option in ("backbone", "documents", "queries", "retriever"):
        words += [f"--{option}", str(getattr(given, option))] if getattr(given, option) else []
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{way}: {done.stderr[-2000:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def summarize(runs: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """The least seconds of every way, and their ratios; the interval is over queries."""
    import numpy as np

    ways = {}
    for way, turns in runs.items():
        requests = np.min([turn["requests"] for turn in turns], axis=0)  # (queries, 2)
        ways[way] = {
            "index": min(turn["index"] for turn in turns),
            "retrieval": float(requests[:, 0].mean()),
            "pass": float(requests[:, 1].mean()),
            "full": min(turn["full"] for turn in turns),
            "each": requests.sum(axis=1),
        }
    before = ways["base"]["each"]
    drawn = np.random.default_rng(0).integers(0, len(before), (_RESAMPLES, len(before)))
    ratios: dict[str, Any] = {}
    for way in list(ways)[1:]:
        each = ways[way].pop("each")
        times_faster = before[drawn].sum(axis=1) / each[drawn].sum(axis=1)
        ratios[way] = {
            "index over base": ways[way]["index"] / ways["base"]["index"],
            "base request over this": float(before.mean() / each.mean()),
            "from": float(np.quantile(times_faster, 0.025)),
            "to": float(np.quantile(times_faster, 0.975)),
            "full over request": ways[way]["full"] / float(each.mean()),
            "full over pass": ways[way]["full"] / ways[way]["pass"],
        }
    ways["base"].pop("each")
    half, single = ways["bfloat16"], ways["float32"]
    ratios["bfloat16 over float32"] = {name: half[name] / single[name] for name in ("index", "pass", "full")}
    return {"pages": runs["base"][0]["pages"], "seconds": ways, "ratios": ratios}


def main() -> None:
    """Run all ways in turns; write the row."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name")
    parser.add_argument("--backbone", required=True)
    parser.add_argument("--retriever", default="")
    parser.add_argument("--documents", type=Path, required=True)
    parser.add_argument("--queries", type=Path, required=True)
    parser.add_argument("--base", type=Path, help="another checkout of this repository")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--dtype", help=argparse.SUPPRESS)
    parser.add_argument("--store", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.store is not None:
        print(json.dumps(work(given)))
        return
    import tempfile

    from benchmarks import publish

    runs: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS}
    for turn in range(given.turns):
        for way in list(WAYS)[:: 1 if turn % 2 == 0 else -1]:
            with tempfile.TemporaryDirectory() as scratch:
                runs[way].append(run_way(way, given, Path(scratch)))
                print(f"turn {turn + 1}, {way}: {runs[way][-1]['index']:.1f} s to index", file=sys.stderr)
    rows = json.loads(given.out.read_text())["rows"] if given.out and given.out.exists() else []
    kept = [row for row in rows if row["name"] != given.name]
    words = ["git", "-C", str(given.base), "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(words, capture_output=True, text=True)
    row = {"name": given.name, "base": commit.stdout.strip(), "turns": given.turns, **summarize(runs)}
    publish({"rows": [*kept, row]}, given.out)


if __name__ == "__main__":
    main()
