"""A model of full size, as a user would run it: load, index, calibrate, search, by the commands of README.

    python -m benchmarks.full_size --configuration FOLDER [--pages 20] [--seven-billion 4] [--work FOLDER]
        [--out FILE]

FOLDER holds the published config.json, tokenizer and processor settings of Qwen2.5-VL-3B; the weights are
random (`full_size_model.py`), in bfloat16. So this shows memory, bytes and time, not quality. Steps that are
done are not done again: an interrupted run goes on, and a larger --pages adds pages. Needs no GPU, some 20 GB
of disk and the memory of the weights and 2 GiB. --seven-billion does the same with the shape of the 7B, which
takes 19 GB of memory and 20 GB more of disk.
"""

import argparse
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil
from reportlab.pdfgen.canvas import Canvas
from transformers import AutoTokenizer

from benchmarks.full_size_agreement import compare_dtypes
from benchmarks.full_size_model import SEVEN_BILLION, write_checkpoint
from benchmarks.report import publish
from ridgerank.backbones.prompt import PromptTokens
from ridgerank.backbones.qwen2_5_vl import Qwen25VL
from ridgerank.store.page_store import PageStore

MEMORY_BAR = 2 * 2**30
"""Bytes that a command may take above the weights."""
STORE_BAR = 0.03
VISUAL_POSITIONS = 1280
"""32 x 40: the shape of the pages that are drawn."""
QUERIES = 16
WORDS = (
    "revenue margin energy carbon water payroll audit dividend "
    "lease patent supplier factory board risk tax export"
)


@dataclass(frozen=True, slots=True)
class Step:
    """What one command took."""

    command: str
    seconds: float
    """By the clock, on a machine that others may use."""
    cpu_seconds: float
    peak_bytes: int
    """The largest resident memory of the command and its children, mapped files included."""


def run_step(words: list[str]) -> Step:
    """Run a ridgerank command and watch its memory ten times a second."""
    start = time.perf_counter()
    peak, cpu = watch(psutil.Popen([sys.executable, "-m", "ridgerank.cli.main", *words]))
    shown = [Path(word).name if "/" in word else word for word in words]
    return Step(" ".join(["ridgerank", *shown]), round(time.perf_counter() - start, 1), round(cpu, 1), peak)


def watch(process: psutil.Popen) -> tuple[int, float]:
    """Peak memory in bytes and CPU seconds of a process; ends this one where it fails."""
    peak, cpu = 0, 0.0
    while process.poll() is None:
        with contextlib.suppress(psutil.NoSuchProcess):
            memory = [member.memory_info() for member in [process, *process.children(recursive=True)]]
            # Children share the parent's mapped files: they are counted once.
            peak = max(peak, memory[0].rss + sum(each.rss - each.shared for each in memory[1:]))
            cpu = max(cpu, sum(process.cpu_times()[:4]))
        time.sleep(0.1)
    if process.returncode:
        sys.exit(f"{' '.join(process.args)} ended with {process.returncode}")
    return peak, cpu


def draw_documents(folder: Path, pages: int) -> Path:
    """Pages of 1,280 visual positions with a text layer, one file each, and 16 queries about them."""
    folder.mkdir(parents=True, exist_ok=True)
    words = WORDS.split()
    for number in range(pages):
        path = folder / f"report-{number:02}.pdf"
        canvas = Canvas(str(path), (640, 800), invariant=1)
        for line in range(30):
            topic, other = words[(number + line) % len(words)], words[(number * 3 + line * 5) % len(words)]
            canvas.drawString(
                60, 750 - 24 * line, f"{topic} of {other} in 20{line:02}: {number * 31 + line * 7}"
            )
        canvas.save()
    queries = folder.parent / "queries.jsonl"
    rows = [
        {"query_id": f"q{number}", "text": f"{word} of {words[number - 5]}"}
        for number, word in enumerate(words)
    ]
    queries.write_text("".join(json.dumps(row) + "\n" for row in rows[:QUERIES]))
    return queries


def page_arithmetic(settings: Mapping[str, Any], layers: int, positions: int) -> int:
    """Bytes of a page in int8: keys and values of every layer at the positions kept, and nothing else."""
    head_dim = settings["hidden_size"] // settings["num_attention_heads"]
    return int(layers * 2 * settings["num_key_value_heads"] * head_dim * positions)


def count_positions(folder: Path) -> int:
    """A third of the visual positions, and the prompt's around the page."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokens = PromptTokens(Qwen25VL.prompt, tokenizer.backend_tokenizer)
    around = len(tokens.image_page(Qwen25VL.image_token)) - 1
    return round(VISUAL_POSITIONS / 3) + around


def rehearse(folder: Path, weight_bytes: int, work: Path, pages: int) -> dict[str, Any]:
    """Index with calibration, then search; what each command took and what the store holds."""
    documents, store = work / f"documents-{pages}", work / f"store-{folder.name}"
    queries = draw_documents(documents, pages)
    model = ["--backbone", str(folder), "--device", "cpu", "--dtype", "bfloat16"]
    done = work / f"steps-{folder.name}-{pages}.json"
    if done.exists():
        steps = [Step(**step) for step in json.loads(done.read_text())]
    else:
        index = ["index", str(documents), "--store", str(store), *model, "--processes", "1"]
        steps = [run_step([*index, "--preset", "paper", "--calibrate", "--queries", str(queries)])]
        steps.append(run_step(["search", "--store", str(store), *model[2:], "revenue of tax"]))
        done.write_text(json.dumps([asdict(step) for step in steps]))
    with PageStore.open(str(store)) as opened:
        info, exit_layer = opened.info(), opened.lineage.exit_layer
    settings = json.loads((folder / "config.json").read_text())
    expected = page_arithmetic(settings, exit_layer, count_positions(folder))
    peak = max(step.peak_bytes for step in steps)
    return {
        "weights_bytes": weight_bytes,
        "layers": settings["num_hidden_layers"],
        "exit_layer": exit_layer,
        "pages": info.pages,
        "visual_positions": VISUAL_POSITIONS,
        "queries": QUERIES,
        "steps": [asdict(step) for step in steps],
        "peak_above_weights_mib": round((peak - weight_bytes) / 2**20),
        "memory_bar_mib": MEMORY_BAR // 2**20,
        "bytes_per_page": round(info.bytes_per_page),
        "bytes_per_page_arithmetic": expected,
        "bytes_per_page_above_arithmetic": round(info.bytes_per_page / expected - 1, 4),
        "bytes_bar": STORE_BAR,
    }


def load_alone(folder: Path) -> dict[str, Any]:
    """What loading the model and digesting its weights take."""
    code = (
        "import json, sys, time, torch\n"
        "from ridgerank.backbones.load import load_backbone\n"
        "start = time.process_time()\n"
        "backbone = load_backbone(sys.argv[1], device='cpu', dtype=torch.bfloat16)\n"
        "loaded = time.process_time()\n"
        "backbone.fingerprints()\n"
        "print(json.dumps([round(loaded - start, 2), round(time.process_time() - loaded, 2)]))\n"
    )
    process = psutil.Popen([sys.executable, "-c", code, str(folder)], stdout=subprocess.PIPE, text=True)
    peak = watch(process)[0]
    with process.stdout as printed:
        load_seconds, digest_seconds = json.loads(printed.read().strip().splitlines()[-1])
    return {"load_cpu_seconds": load_seconds, "fingerprint_cpu_seconds": digest_seconds, "peak_bytes": peak}


def compute_once(path: Path, compute: Callable[[], Any]) -> Any:  # noqa: ANN401 (any JSON value)
    """What a file holds, or what is computed now and kept in it."""
    if not path.exists():
        path.write_text(json.dumps(compute()))
    return json.loads(path.read_text())


def measure(
    name: str, configuration: Path, work: Path, pages: int, changes: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Write a checkpoint, load it, rehearse with it, and print what memory and bytes were."""
    folder = work / name.lower()
    weight_bytes = write_checkpoint(configuration, folder, changes)
    loading = compute_once(work / f"loading-{folder.name}.json", lambda: load_alone(folder))
    report = rehearse(folder, weight_bytes, work, pages)
    print(f"{name}: peak memory above the weights {report['peak_above_weights_mib']} MiB (bar: 2048)")
    print(f"bytes per page above the arithmetic: {report['bytes_per_page_above_arithmetic']:+.1%} (bar: 3 %)")
    return {
        "model": f"{name}, random weights, bfloat16 on a CPU",
        "loading": loading,
        "rehearsal": report,
    }


def main() -> None:
    """Write the checkpoint, rehearse, compare dtypes; print what was found and what was not run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--configuration", type=Path, required=True)
    parser.add_argument("--pages", type=int, default=20)
    parser.add_argument("--work", type=Path, default=Path("full-size"))
    parser.add_argument("--why-fewer", default="", help="why --pages is below twenty, for the results file")
    parser.add_argument("--seven-billion", type=int, default=0, help="also so many pages with the 7B shape")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    work = arguments.work
    result = measure("Qwen2.5-VL-3B", arguments.configuration, work, arguments.pages)
    result["agreement"] = compute_once(
        work / "agreement.json", lambda: compare_dtypes(arguments.configuration, work)
    )
    if arguments.why_fewer:
        result["rehearsal"]["why_not_twenty_pages"] = arguments.why_fewer
    if arguments.seven_billion:
        result["seven_billion"] = measure(
            "Qwen2.5-VL-7B", arguments.configuration, work, arguments.seven_billion, SEVEN_BILLION
        )
    else:
        result["not_run"] = "the 7B shape: its weights take 16.6 GB of memory (--seven-billion)"
    for row in result["agreement"]:
        print(f"{row['model']}: bfloat16 and float32 order {row['same_order']:.1%} of pairs of pages alike")
    publish(result, arguments.out)


if __name__ == "__main__":
    main()
