"""Stage 3: a page store per corpus and backbone, and the full-depth margins of its candidates."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from experiments.datasets.base import BenchmarkCorpus
from experiments.reproduce.stages.checkpoint import StageProgress
from experiments.reproduce.stages.retrieval import CandidatePools
from ridgerank.backbones.base import Backbone
from ridgerank.calibration.teacher import TargetCache, complete_targets
from ridgerank.documents.ocr import Recognizer
from ridgerank.indexing.index import IndexProgress, ProgressCallback, index_documents
from ridgerank.lineage import Keep
from ridgerank.ragged import Floats
from ridgerank.records import Candidate
from ridgerank.store.page_store import PageStore
from ridgerank.store.vector_columns import PageEmbedder


def build_store(
    uri: str,
    corpus: BenchmarkCorpus,
    backbone: Backbone,
    margins: TargetCache,
    pools: Sequence[CandidatePools],
    *,
    candidates: int,
    exit_layer: int,
    keep: Keep,
    embedder: PageEmbedder | None,
    recognizer: Recognizer | None,
    progress: StageProgress,
) -> None:
    """Index a corpus and compute the margin of every candidate; either continues where it was interrupted."""
    indexed = Path(uri).with_name("indexed")
    if not indexed.exists():
        index_documents(
            corpus.documents,
            uri,
            backbone,
            progress=_count_pages(progress, f"{corpus.name}: pages into {Path(uri).parent.name}"),
            exit_layer=exit_layer,
            keep=keep,
            preset="paper",
            processes=0,  # a process takes long to start
            embedder=embedder,
            recognizer=recognizer,
        )
        indexed.touch()
    counted = 0

    def advance(done: int, total: int) -> None:
        nonlocal counted
        if done == 0 < total:
            progress.start(f"{corpus.name}: margins", total)
        progress.advance(done - counted)
        counted = done

    with PageStore.open(uri) as store:
        wanted = candidates_by_query(corpus, pools, candidates)
        complete_targets(backbone, store, margins, wanted, progress=advance)


def candidates_by_query(
    corpus: BenchmarkCorpus, pools: Sequence[CandidatePools], candidates: int
) -> dict[str, list[Candidate]]:
    """Query text → all pages some retriever returned for it."""
    by_text: dict[str, dict[str, Candidate]] = {}
    for pool in pools:
        for number, query in enumerate(corpus.queries):
            by_text.setdefault(query.text, {}).update((c.page_id, c) for c in pool.of(number, candidates))
    return {text: list(pages.values()) for text, pages in by_text.items()}


def gather_margins(
    corpus: BenchmarkCorpus, pools: CandidatePools, margins: TargetCache, *, candidates: int
) -> Floats:
    """(queries, candidates): the margins of one retriever's candidates."""
    rows = [
        [margins.margin(query.text, page_id) for page_id in pools.page_ids[number, :candidates].tolist()]
        for number, query in enumerate(corpus.queries)
    ]
    return np.array(rows, dtype=np.float64)


def _count_pages(progress: StageProgress, what: str) -> ProgressCallback:
    """Count pages on the progress bar of the run."""
    counted: int | None = None

    def show(state: IndexProgress) -> None:
        nonlocal counted
        if state.failure is not None:
            progress.echo(f"left out: {state.failure}")
            return
        if counted is None:
            progress.start(what, state.total)
            counted = 0
        progress.advance(state.done - counted)
        counted = state.done

    return show
