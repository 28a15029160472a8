"""What a first hour costs: index, calibrate and search one's own PDFs, in processor seconds and bytes.

    python -m benchmarks.first_hour DOCS QUESTION --backbone MODEL --out results/first_hour.json

The commands are README's, by the defaults, each in a process of its own; readers of PDFs count.
"""

import argparse
import resource
import tempfile
from pathlib import Path

from benchmarks import publish, ridgerank
from ridgerank.calibration.artifact import Calibration
from ridgerank.store.page_store import PageStore


def main() -> None:
    """Run the commands, publish the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("documents", type=Path)
    parser.add_argument("question")
    parser.add_argument("--backbone", required=True)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "pages"
        models = ("--backbone", given.backbone, "--dtype", given.dtype)
        index = processor_seconds("index", given.documents, "--store", store, *models)
        search = processor_seconds("search", "--store", store, given.question)
        calibrate = processor_seconds("calibrate", "--store", store)
        with PageStore.open(store) as opened:
            info = opened.info()
        weight = Calibration.load(store).weight.weight
    publish(
        {
            "backbone": Path(given.backbone).name,
            "dtype": given.dtype,
            "pages": info.pages,
            "setting": str(info.lineage.storage),
            "index_cpu_seconds_per_page": round(index / info.pages, 2),
            "calibrate_cpu_seconds_per_page": round(calibrate / info.pages, 2),
            "search_cpu_seconds": round(search, 1),
            "bytes_per_page": round(info.bytes_per_page),
            "weight": round(weight, 3),
        },
        given.out,
    )


def processor_seconds(*words: object) -> float:
    """Run a command; the processor seconds it and its processes took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ridgerank(*words)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()
