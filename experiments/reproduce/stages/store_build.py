"""Stage 3: a page store per corpus and backbone, and the full-depth margins of its candidates."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from experiments.datasets.base import BenchmarkCorpus
from experiments.reproduce.stages.candidate_pools import CandidatePools
from experiments.reproduce.stages.stage_progress import StageProgress
from ridgerank.backbones.base import Backbone
from ridgerank.calibration.teacher import TargetCache, complete_targets
from ridgerank.documents.ocr import Recognizer
from ridgerank.documents.sources import Failure
from ridgerank.indexing.index import index_documents
from ridgerank.indexing.progress import IndexPlan
from ridgerank.ragged import Floats
from ridgerank.records import Candidate
from ridgerank.store.page_store import PageStore
from ridgerank.store.storage_setting import Keep
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
            hook=_ProgressHook(progress, f"{corpus.name}: pages into {Path(uri).parent.name}"),
            exit_layer=exit_layer,
            keep=keep,
            processes=1,  # rendering is little beside the models, and a process takes long to start
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
            pages = by_text.setdefault(query.text, {})
            pages.update((candidate.page_id, candidate) for candidate in pool.of(number, candidates))
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


class _ProgressHook:
    """An indexing hook that counts pages on the progress bar of the run."""

    def __init__(self, progress: StageProgress, what: str) -> None:
        self._progress = progress
        self._what = what

    def planned(self, plan: IndexPlan) -> None:
        """Begin to count."""
        self._progress.start(self._what, plan.pages)
        self._progress.advance(plan.stored)

    def committed(self, pages: int, nbytes: int) -> None:
        """Count on."""
        self._progress.advance(pages)

    def failed(self, failure: Failure) -> None:
        """Say it."""
        self._progress.say(f"left out: {failure}")
