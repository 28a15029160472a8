"""Stage 3: a page store per corpus and backbone; full-depth margins are taken while pages are encoded."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from experiments.datasets.base import Corpus
from experiments.reproduce.stages.candidate_pools import Pools
from experiments.reproduce.stages.stage_progress import Watcher
from ridgerank.backbones.base import Backbone
from ridgerank.backbones.prefix import Prefix
from ridgerank.calibration.target_cache import TargetCache
from ridgerank.calibration.teacher import Teacher
from ridgerank.documents.failures import Failure
from ridgerank.documents.ocr import Recognizer
from ridgerank.documents.pages import PageRef
from ridgerank.indexing.index import index_documents
from ridgerank.indexing.progress import IndexPlan
from ridgerank.ragged import Floats
from ridgerank.records import Candidate
from ridgerank.store.page_store import PageStore
from ridgerank.store.pruning import Keep
from ridgerank.store.rerender import rerender_pages
from ridgerank.store.vector_columns import PageEmbedder


def build_store(
    uri: str,
    corpus: Corpus,
    backbone: Backbone,
    margins: TargetCache,
    pools: Sequence[Pools],
    *,
    candidates: int,
    exit_layer: int,
    keep: Keep,
    embedder: PageEmbedder | None,
    recognizer: Recognizer | None,
    watcher: Watcher,
) -> None:
    """Index a corpus and take the margin of every candidate; either goes on where it was interrupted."""
    teacher = Teacher(backbone, margins)
    teacher.request(wanted(corpus, pools, candidates))
    indexed = Path(uri).with_name("indexed")
    if not indexed.exists():
        index_documents(
            corpus.documents,
            uri,
            backbone,
            hook=_Counting(watcher, f"{corpus.name}: pages into {Path(uri).parent.name}"),
            exit_layer=exit_layer,
            keep=keep,
            processes=1,  # rendering is little beside the models, and a process takes long to start
            embedder=embedder,
            recognizer=recognizer,
            encode_hook=_Looking(teacher),
        )
        indexed.touch()
    if teacher.missing:
        with PageStore.open(uri) as store:
            watcher.start(f"{corpus.name}: margins left out", len(teacher.missing))
            for batch in rerender_pages(store, teacher.missing, max_pixels=backbone.max_pixels):
                teacher.encode(batch)
                watcher.advance(len(batch))


def wanted(corpus: Corpus, pools: Sequence[Pools], candidates: int) -> dict[str, list[Candidate]]:
    """Query text → all pages some retriever returned for it."""
    found: dict[str, dict[str, Candidate]] = {}
    for own in pools:
        for number, query in enumerate(corpus.queries):
            pages = found.setdefault(query.text, {})
            pages.update((candidate.page_id, candidate) for candidate in own.of(number, candidates))
    return {text: list(pages.values()) for text, pages in found.items()}


def gather(corpus: Corpus, pools: Pools, margins: TargetCache, *, candidates: int) -> Floats:
    """(queries, candidates): the margins of one retriever's candidates."""
    found = [
        [margins.margin(query.text, page_id) for page_id in pools.page_ids[number, :candidates].tolist()]
        for number, query in enumerate(corpus.queries)
    ]
    return np.array(found, dtype=np.float64)


class _Looking:
    """An `EncodeHook` that takes the margins wanted."""

    def __init__(self, teacher: Teacher) -> None:
        self._teacher = teacher

    def listed(self, refs: Mapping[str, PageRef], stored: frozenset[str]) -> None:
        """All is known already."""

    def wants(self, page_id: str) -> bool:
        """Whether it is a candidate of some query."""
        return self._teacher.wants(page_id)

    def encoded(self, page_ids: Sequence[str], prefixes: Sequence[Prefix]) -> None:
        """Take its margins."""
        self._teacher.compute(page_ids, prefixes)


class _Counting:
    """An indexing watcher that counts on our bar."""

    def __init__(self, watcher: Watcher, what: str) -> None:
        self._watcher = watcher
        self._what = what

    def planned(self, plan: IndexPlan) -> None:
        """Begin to count."""
        self._watcher.start(self._what, plan.pages)
        self._watcher.advance(plan.stored)

    def committed(self, pages: int, nbytes: int) -> None:
        """Count on."""
        self._watcher.advance(pages)

    def failed(self, failure: Failure) -> None:
        """Say it."""
        self._watcher.say(f"left out: {failure}")
