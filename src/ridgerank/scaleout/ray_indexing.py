"""Documents into a store by way of Ray Data: portions of pages out to workers, fragments committed here.

Listing, names and commits are those of one machine (`indexing/index.py`). Portions are committed whole and
in the order of the list, so that an interrupted run is gone on with as a local one is, here or there.
"""

import pickle
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from ridgerank.indexing.index import Committed, run_index
from ridgerank.indexing.listing import Task, batches
from ridgerank.indexing.progress import IndexReport, Watcher
from ridgerank.scaleout.encoding_worker import (
    Described,
    Encoded,
    EncodingPlan,
    EncodingWorker,
    Portion,
    describe,
)
from ridgerank.scaleout.ray_cluster import Crew, telling
from ridgerank.store.store_writer import StoreWriter

PORTION_PAGES = 64
"""Pages of a fragment: what a lost worker can cost."""
_COMMIT_SECONDS = 15.0
"""Portions that are done wait for a commit no longer than this: what an interruption can cost."""
_BLOCKS = 4096
"""Blocks Ray Data keeps book of; beyond that several portions share one."""


def index_on_ray(
    paths: Iterable[str | Path],
    uri: str,
    plan: EncodingPlan,
    *,
    ray: Any,  # noqa: ANN401 (Ray's module)
    crew: Crew,
    watcher: Watcher,
    prune: bool = False,
    portion_pages: int = PORTION_PAGES,
) -> IndexReport:
    """Bring every page under `paths` into the store at `uri`; every machine has to see both.

    The report, and the rows of the store, are those of `index_documents`.
    """
    described: Described = ray.get(ray.remote(**crew.resources)(describe).remote(plan))
    work = _OnRay(ray, plan, described, crew, uri, portion_pages)
    return run_index(
        paths,
        uri,
        described.lineage,
        work,
        watcher=watcher,
        origin=described.origin,
        reads_text=described.reads_text,
        prune=prune,
    )


@dataclass(slots=True)
class _Gathered:
    """What waits for a commit."""

    encoded: list[Encoded] = field(default_factory=list)
    since: float = field(default_factory=time.monotonic)


@dataclass(frozen=True, slots=True)
class _OnRay:
    ray: Any
    plan: EncodingPlan
    described: Described
    crew: Crew
    uri: str
    portion_pages: int

    def commits(self, task: Task, writer: StoreWriter, watcher: Watcher) -> Iterator[Committed]:
        """Do the task, telling of each commit when it is made."""
        gathered = _Gathered()
        for encoded in self._encoded(list(self._portions(task))):
            for failure in encoded.failures:
                task.failed(watcher, failure)
            gathered.encoded.append(encoded)
            if time.monotonic() - gathered.since >= _COMMIT_SECONDS:
                yield _commit(gathered.encoded, writer)
                gathered = _Gathered()
        if gathered.encoded:
            yield _commit(gathered.encoded, writer)

    def _portions(self, task: Task) -> Iterator[Portion]:
        batch_pages = self.described.batch_pages
        a_portion = max(1, self.portion_pages // batch_pages)
        numbered = batches(task.listing, task.done, batch_pages)
        for _, pages in groupby(numbered, key=lambda one: one[0] // a_portion):
            cut = [tuple(ref for _, ref in batch) for _, batch in groupby(pages, key=lambda one: one[0])]
            page_ids = [ref.page_id for batch in cut for ref in batch]
            yield Portion(
                batches=tuple(cut),
                names={page_id: task.listing.names[page_id] for page_id in page_ids},
                stored=task.stored.intersection(page_ids),
            )

    def _encoded(self, portions: list[Portion]) -> Iterator[Encoded]:
        """What workers made of each portion, in order; Ray does a lost worker's portion again."""
        if not portions:
            return
        import ray.data
        from ray.data import ActorPoolStrategy, DataContext

        context = DataContext.get_current()
        context.execution_options.preserve_order = True
        context.enable_progress_bars = False
        given = ray.data.from_items(
            [{"portion": pickle.dumps(portion)} for portion in portions],
            override_num_blocks=min(len(portions), _BLOCKS),
        )
        made = given.map_batches(
            EncodingWorker,
            fn_constructor_args=(self.plan, self.uri, self.described),
            batch_size=1,
            compute=ActorPoolStrategy(size=min(self.crew.workers, len(portions))),
            **self.crew.resources,
        )
        with telling("encoding", safe="what was committed is safe"):
            for row in made.iter_rows():
                encoded: Encoded = pickle.loads(row["encoded"])
                yield encoded


def _commit(encoded: list[Encoded], writer: StoreWriter) -> Committed:
    page_ids = [page_id for one in encoded for page_id in one.page_ids]
    writer.append_fragments([fragment for one in encoded for fragment in one.fragments], page_ids)
    vectors = {page_id: own for one in encoded for page_id, own in one.vectors.items()}
    writer.set_vectors(vectors)
    return Committed(
        added=len(page_ids),
        embedded=len(vectors),
        prefix_bytes=sum(one.prefix_bytes for one in encoded),
        nbytes=sum(one.nbytes for one in encoded),
    )
