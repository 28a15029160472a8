"""What Ray costs over one process: the same 300 pages indexed by both, then 900, on this machine.

    python -m benchmarks.ray_overhead --out results/ray_overhead.json

The cluster is of this machine and runs already when the clock starts; loading models counts on both sides.
Ray starts a process for each worker, which imports what this one has imported, and loads a model in each and
one more to learn what it is: that is paid once. What 600 pages more take, over what they take one process, is
what is paid for ever. Every process has one thread: W workers on as many cores could at best take 1/W.
"""

import argparse
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.report import publish
from ridgerank.backbones.load import load_backbone
from ridgerank.backbones.model_settings import ModelSettings
from ridgerank.documents.failures import Failure
from ridgerank.indexing.index import index_documents
from ridgerank.indexing.progress import IndexPlan
from ridgerank.scaleout.encoding_worker import EncodingPlan
from ridgerank.scaleout.ray_cluster import connect_ray, plan_workers
from ridgerank.scaleout.ray_indexing import index_on_ray
from ridgerank.store.layout import pack
from ridgerank.store.page_store import PageStore

PAGES = 300
MORE = 3


class _Nobody:
    """A watcher who looks away."""

    def planned(self, plan: IndexPlan) -> None: ...

    def committed(self, pages: int, nbytes: int) -> None: ...

    def failed(self, failure: Failure) -> None:
        raise SystemExit(str(failure))


def main() -> None:
    """Index twice, compare, print the ratio."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path)
    parser.add_argument("--pages", type=int, default=PAGES)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--ray", default="local")
    options = parser.parse_args()
    torch.set_num_threads(1)
    few = compare(options.pages, options.workers, options.ray)
    many = compare(MORE * options.pages, options.workers, options.ray)
    further = (many.ray_s - few.ray_s) / (many.here_s - few.here_s)
    print(
        f"{options.pages} pages: {few.ray_s / few.here_s:.2f}x the time of one process, {few.workers} "
        f"workers ({1 / few.workers:.2f}x is the least); {further:.2f}x for further pages"
    )
    result = {
        "pages": options.pages,
        "workers": few.workers,
        "time_over_one_process": round(few.ray_s / few.here_s, 2),
        "further_pages_over_one_process": round(further, 2),
        "same_bytes": few.same and many.same,
    }
    publish(result, options.out)


@dataclass(frozen=True)
class Compared:
    """Seconds of both, and whether the stores are equal."""

    here_s: float
    ray_s: float
    workers: int
    same: bool


def compare(pages: int, workers: int, address: str) -> Compared:
    """Index documents here, then on Ray."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write_documents(folder / "in", pages)
        began = time.perf_counter()
        index_documents(
            [folder / "in"],
            str(folder / "here"),
            load_backbone("mini-qwen", device="cpu"),
            hook=_Nobody(),
            processes=1,
        )
        here_s = time.perf_counter() - began
        plan = EncodingPlan(ModelSettings("mini-qwen", device="cpu"), "stride 1/3", None, 0)
        with connect_ray(address) as ray:
            cluster = plan_workers(ray, workers, "cpu")
            began = time.perf_counter()
            index_on_ray([folder / "in"], str(folder / "ray"), plan, ray=ray, workers=cluster, hook=_Nobody())
            ray_s = time.perf_counter() - began
        same = prefixes(folder / "here") == prefixes(folder / "ray")
    return Compared(here_s, ray_s, cluster.count, same)


def prefixes(store: Path) -> dict[str, bytes]:
    """Every prefix, byte by byte."""
    with PageStore.open(str(store)) as opened:
        ids = opened.page_ids()
        return {
            page_id: pack(prefix).tobytes()
            for page_id, prefix in zip(ids, opened.read_prefixes(ids), strict=True)
        }


def write_documents(folder: Path, pages: int) -> None:
    """PDFs of ten pages with a few lines and bars each."""
    from reportlab.pdfgen.canvas import Canvas

    folder.mkdir()
    for first in range(0, pages, 10):
        canvas = Canvas(str(folder / f"report-{first:05}.pdf"), (300, 400), invariant=1)
        for number in range(first, min(first + 10, pages)):
            canvas.drawString(20, 370, f"Report {number}: margin and growth")
            for bar in range(8):
                canvas.rect(20 + 30 * bar, 20, 20, 20 + (37 * number + 53 * bar) % 200, fill=1)
            canvas.showPage()
        canvas.save()


if __name__ == "__main__":
    main()
