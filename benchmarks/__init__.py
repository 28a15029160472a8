"""Benchmarks, a script each; here what they share: running a command, making a store, writing a result."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from miniature import weights
from miniature.corpora import find_plan, make_corpus
from miniature.draw import draw_corpus
from ridgerank.atomic import replace_text_file


def publish(result: Mapping[str, Any], out: Path | None) -> None:
    """Print the result as one line of JSON; keep it where `out` says."""
    print(json.dumps(result))
    if out is not None:
        with replace_text_file(out) as file:
            file.write(json.dumps(result, indent=2) + "\n")


def ridgerank(*words: object) -> None:
    """Run a command; what it prints is shown only if it fails."""
    command = [sys.executable, "-m", "ridgerank", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"ridgerank {' '.join(map(str, words))}: {done.stderr[-2000:]}")


def make_store(folder: Path, *, documents: int | None = None) -> tuple[Path, list[str]]:
    """A corpus of the miniature, or its first documents, calibrated by half of its queries; all queries."""
    for _ in draw_corpus(make_corpus(find_plan("alder")), folder):
        pass
    store, half = folder / "pages", folder / "half.jsonl"
    models = ("--backbone", weights("mini-qwen"), "--retriever", weights("mini-colqwen"))
    paths = sorted((folder / "documents").glob("*.pdf"))[:documents]
    ridgerank("index", *paths, "--store", store, *models, "--preset", "paper")
    lines = (folder / "queries.jsonl").read_text().splitlines()
    half.write_text("\n".join(lines[::2]))
    ridgerank("calibrate", "--store", store, "--queries", half)
    return store, [json.loads(line)["text"] for line in lines]
