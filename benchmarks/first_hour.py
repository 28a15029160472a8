"""The recipe of README without a GPU: processor seconds and bytes per page, and seconds of a search.

    python -m benchmarks.first_hour --backbone models/smollm2-135m --documents a.pdf b.pdf --keep-store pages

Commands run on one thread, one after the other, as README types them; the machine may be busy meanwhile. A
model that comes as GGUF is unpacked before the first measurement.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.report import publish
from benchmarks.startup import QUERY, cpu_seconds
from ridgerank.store.number_format import NumberFormat


def main() -> None:
    """Index, calibrate, search; publish."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--backbone", type=Path, required=True)
    parser.add_argument("--name", default="SmolLM2-135M-Instruct", help="The model, as results call it.")
    parser.add_argument("--documents", type=Path, nargs="+", required=True)
    parser.add_argument("--keep-store", type=Path, help="Leave the store here.")
    parser.add_argument("--out", type=Path, default=Path("results/first_hour.json"))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        store = arguments.keep_store or Path(scratch, "pages")
        cache = Path(scratch, "cache")
        load = (
            f"from ridgerank.backbones.load import load_backbone; load_backbone({str(arguments.backbone)!r})"
        )
        unpack = {"RIDGERANK_CACHE": str(cache), "PYTHONPATH": ":".join(filter(None, sys.path))}
        subprocess.run([sys.executable, "-c", load], env=unpack, check=True)
        index = ["index", *arguments.documents, "--store", store, "--backbone", arguments.backbone]
        indexing = cpu_seconds(index, cache)
        info = json.loads(_output(["store", "info", str(store), "--json"]))
        calibrating = cpu_seconds(["calibrate", "--store", store], cache)
        searching = cpu_seconds(["search", "--store", store, QUERY], cache)
        facts = json.loads((store / "calibrations" / "default.json").read_text())
    pages = info["pages"]
    lineage = info["lineage"]
    numbers = NumberFormat(lineage["key_bits"], lineage["value_bits"], lineage["number_group"])
    result = {
        "backbone": arguments.name,
        "pages": pages,
        "setting": f"{lineage['keep']}, {numbers} bits, exit {lineage['exit_layer']}",
        "index_cpu_seconds_per_page": round(indexing / pages, 2),
        "calibrate_cpu_seconds": round(calibrating),
        "calibrate_cpu_seconds_per_page": round(calibrating / pages, 2),
        "search_cpu_seconds": round(searching, 1),
        "bytes_per_page": round(info["bytes_per_page"]),
        "weight": round(facts["weight"]["weight"], 3),
    }
    print(json.dumps(result, indent=2))
    publish(result, arguments.out)


def _output(words: list[str]) -> str:
    command = [sys.executable, "-m", "ridgerank.cli.main", *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    main()
