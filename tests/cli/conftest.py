"""What the tests of several commands share: simulated runs, an indexed store, a calibrated store."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from experiments.simulation import World, simulate
from ridgerank.backbones.base import Backbone
from ridgerank.reranker.reranker import Reranker
from tests.calibrated_store import write_reports
from tests.cli.commands import invoke, run_process
from tests.conftest import write_pdf

QUERIES = {
    f"q{n}": f"{word} of Norway" for n, word in enumerate(["margin", "risk", "growth", "debt", "water"])
}


@pytest.fixture(scope="session")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A PDF of three pages, and one that cannot be read."""
    folder = tmp_path_factory.mktemp("documents")
    write_pdf(folder / "good.pdf", pages=3)
    (folder / "bad.pdf").write_text("not a PDF")
    return folder


@pytest.fixture(scope="session")
def indexed(documents: Path, model_folder: Path) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """The store of these documents, and what the command said."""
    store = documents.parent / "store-of-cli"
    words = ("--backbone", model_folder, "--max-pixels", 30 * 28 * 28, "--preset", "paper")
    return store, run_process("index", documents, "--store", store, *words)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory, model_folder: Path) -> Path:
    """Reports, indexed and calibrated in one command."""
    folder = tmp_path_factory.mktemp("ranking")
    write_reports(folder / "docs", pages=40)
    options: list[object] = ["--backbone", model_folder, "--max-pixels", 30 * 28 * 28, "--device", "cpu"]
    options += ["--preset", "paper"]
    done = invoke("index", folder / "docs", "--store", folder / "store", *options, "--calibrate")
    assert "40 pages added" in done.stderr
    assert "The model counts" in done.stderr + done.stdout
    return folder


@pytest.fixture(scope="session")
def reranker(folder: Path, small_backbone: Backbone) -> Iterator[Reranker]:
    with Reranker.open(str(folder / "store"), backbone=small_backbone) as opened:
        yield opened


@pytest.fixture(scope="session")
def run(folder: Path, reranker: Reranker) -> dict[str, list[tuple[str, float]]]:
    """Candidates by BM25, on disk and in memory, pages by reference."""
    (folder / "q.jsonl").write_text(
        "".join(json.dumps({"query_id": key, "text": text}) + "\n" for key, text in QUERIES.items())
    )
    candidates = {
        key: [
            (reranker.store.reference(candidate.page_id), candidate.score)
            for candidate in reranker.retriever.search(text, 6)
        ]
        for key, text in QUERIES.items()
    }
    lines = [
        f"{key} Q0 {page} 1 {score!r} bm25\n" for key, pages in candidates.items() for page, score in pages
    ]
    (folder / "run.trec").write_text("".join(lines))
    return candidates


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("world")
    simulate(World(), queries=40, seed=0).write(folder)
    return folder
