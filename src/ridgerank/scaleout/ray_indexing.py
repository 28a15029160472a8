"""Documents into a store by way of Ray Data: workers write fragments, this process commits them.

Listing, references and commits are those of one machine (`indexing/index.py`). Fragments are committed whole
and in the order of the list, so that an interrupted run can be continued, with Ray or without.
"""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from ridgerank.indexing.index import CommitCounts, run_index
from ridgerank.indexing.names import IndexTask, number_batches
from ridgerank.indexing.progress import IndexHook, IndexReport
from ridgerank.scaleout.encoding_worker import (
    EncodingDescription,
    EncodingPlan,
    EncodingWorker,
    FragmentResult,
    FragmentTask,
    describe_encoding,
)
from ridgerank.scaleout.ray_cluster import ClusterWorkers
from ridgerank.scaleout.ray_datasets import iter_results, map_on_workers
from ridgerank.store.store_writer import StoreWriter

FRAGMENT_PAGES = 64
"""Pages per fragment: a lost worker loses at most this much work."""
_COMMIT_SECONDS = 15.0
"""Written fragments wait for a commit no longer than this: an interruption loses at most this much work."""
_MAX_BLOCKS = 4096
"""Blocks Ray Data keeps track of; above this number several fragments share a block."""


def index_on_ray(
    paths: Iterable[str | Path],
    uri: str,
    plan: EncodingPlan,
    *,
    ray: Any,  # noqa: ANN401 (Ray's module)
    workers: ClusterWorkers,
    hook: IndexHook,
    prune: bool = False,
    fragment_pages: int = FRAGMENT_PAGES,
) -> IndexReport:
    """Bring every page under `paths` into the store at `uri`; every machine has to see both.

    The report, and the rows of the store, are those of `index_documents`.
    """
    description: EncodingDescription = ray.get(
        ray.remote(**workers.resources)(describe_encoding).remote(plan)
    )
    executor = _RayEncodingExecutor(ray, plan, description, workers, uri, fragment_pages)
    return run_index(
        paths,
        uri,
        description.lineage,
        executor,
        hook=hook,
        origin=description.origin,
        reads_text=description.reads_text,
        shared=description.shared,
        prune=prune,
    )


@dataclass(slots=True)
class _Uncommitted:
    """Fragments that wait for a commit."""

    results: list[FragmentResult] = field(default_factory=list)
    since: float = field(default_factory=time.monotonic)


@dataclass(frozen=True, slots=True)
class _RayEncodingExecutor:
    ray: Any
    plan: EncodingPlan
    description: EncodingDescription
    workers: ClusterWorkers
    uri: str
    fragment_pages: int

    def commits(self, task: IndexTask, writer: StoreWriter, hook: IndexHook) -> Iterator[CommitCounts]:
        """Do the task; yields after each commit."""
        uncommitted = _Uncommitted()
        for result in self._encode_on_workers(list(self._fragment_tasks(task))):
            for failure in result.failures:
                task.failed(hook, failure)
            uncommitted.results.append(result)
            if time.monotonic() - uncommitted.since >= _COMMIT_SECONDS:
                yield _commit(uncommitted.results, writer)
                uncommitted = _Uncommitted()
        if uncommitted.results:
            yield _commit(uncommitted.results, writer)

    def _fragment_tasks(self, task: IndexTask) -> Iterator[FragmentTask]:
        batch_pages = self.description.batch_pages
        batches_per_fragment = max(1, self.fragment_pages // batch_pages)
        numbered = number_batches(task.listing, task.done, batch_pages)
        for _, pages in groupby(numbered, key=lambda page: page[0] // batches_per_fragment):
            by_batch = groupby(pages, key=lambda page: page[0])
            fragment_batches = [tuple(ref for _, ref in batch) for _, batch in by_batch]
            page_ids = [ref.page_id for batch in fragment_batches for ref in batch]
            yield FragmentTask(
                batches=tuple(fragment_batches),
                references={page_id: task.listing.references[page_id] for page_id in page_ids},
                stored=task.stored.intersection(page_ids),
            )

    def _encode_on_workers(self, tasks: list[FragmentTask]) -> Iterator[FragmentResult]:
        """The fragments that workers have written, in order."""
        if not tasks:
            return
        results = map_on_workers(
            tasks,
            EncodingWorker,
            (self.plan, self.uri, self.description),
            workers=self.workers,
            blocks=min(len(tasks), _MAX_BLOCKS),
        )
        yield from iter_results(results, "encoding", safe="what was committed is safe")


def _commit(results: list[FragmentResult], writer: StoreWriter) -> CommitCounts:
    page_ids = [page_id for result in results for page_id in result.page_ids]
    writer.append_fragments([fragment for result in results for fragment in result.fragments], page_ids)
    vectors = {page_id: vectors for result in results for page_id, vectors in result.vectors.items()}
    writer.set_vectors(vectors)
    return CommitCounts(
        added=len(page_ids),
        embedded=len(vectors),
        prefix_bytes=sum(result.prefix_bytes for result in results),
        nbytes=sum(result.nbytes for result in results),
    )
