"""What a command costs before it does anything: processor seconds, whatever else the machine does.

    python -m benchmarks.startup --backbone models/smollm2-135m --documents FOLDER --out results/startup.json

The backbone is a GGUF file or its folder; pages of the documents are indexed and calibrated first, in a
scratch folder. Then the same search runs twice: with an empty cache of unpacked models, and again. A search
in a store that is not there follows; it must import no torch.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.report import publish

BAR = 1 / 3
"""The second search may cost this share of the first one's processor time."""
QUERY = "revenue of the last year"


def main() -> None:
    """Measure and publish."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--backbone", type=Path, required=True)
    parser.add_argument("--documents", type=Path, nargs="+", default=[])
    parser.add_argument(
        "--store", type=Path, help="A calibrated store of this backbone, instead of making one."
    )
    parser.add_argument("--out", type=Path, default=Path("results/startup.json"))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        store = arguments.store or Path(scratch, "pages")
        if arguments.store is None:
            index = ["index", *arguments.documents, "--store", store, "--backbone", arguments.backbone]
            cpu_seconds([*index, "--calibrate"], Path(scratch, "indexing"))
        cache = Path(scratch, "cache")
        search = ["search", "--store", store, QUERY]
        first, second = (cpu_seconds(search, cache) for _ in range(2))
        nowhere = Path(scratch, "nowhere")
        wrong = cpu_seconds(["search", "--store", nowhere, QUERY], cache, status=1)
        torch_imported = imports_torch(["search", "--store", str(nowhere), QUERY])
    print(f"first search {first:.1f} s, second {second:.1f} s: {second / first:.2f} of it (bar {BAR:.2f})")
    print(f"wrong path {wrong:.1f} s, torch imported: {torch_imported}")
    publish(
        {
            "backbone": arguments.backbone.name,
            "first_search_cpu_seconds": round(first, 1),
            "second_search_cpu_seconds": round(second, 1),
            "ratio": round(second / first, 3),
            "bar": round(BAR, 3),
            "wrong_path_cpu_seconds": round(wrong, 1),
            "wrong_path_imports_torch": torch_imported,
        },
        arguments.out,
    )


def cpu_seconds(words: list[object], cache: Path, *, status: int = 0) -> float:
    """Processor seconds of a command and its children, on one thread, with this cache folder."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "RIDGERANK_CACHE": str(cache)}
    before = _children_seconds()
    command = [sys.executable, "-m", "ridgerank.cli.main", *map(str, words)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != status:
        sys.exit(f"{' '.join(command)}: status {done.returncode}\n{done.stderr}")
    return _children_seconds() - before


def imports_torch(words: list[str]) -> bool:
    """Whether a command imports torch before it fails."""
    code = (
        "import sys\nfrom ridgerank.cli.main import main\nsys.argv = ['ridgerank', *sys.argv[1:]]\n"
        "try:\n    main()\nfinally:\n    print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False)
    return done.stdout.strip() == "True"


def _children_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
