"""Documents into a store by way of Ray Data: workers write fragments, this process commits them.

Listing, references and commits are those of one machine (`index.py`), and so are the page encoder and the
batches: the bytes are those of a local run. A fragment belongs to no version of the store until it is
committed; the fragment of a worker that died is never committed and is removed by a later sweep. Fragments
are committed whole and in the order of the list, so that an interrupted run can be continued, with Ray or
without.

Workers have the environment of their machine: credentials of an object store come from there, as here.
"""

import json
import logging
import os
import pickle
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, groupby
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
from lance.fragment import write_fragments
from numpy.typing import NDArray

from ridgerank.backbones.load import parse_dtype
from ridgerank.backbones.model_settings import ModelSettings
from ridgerank.documents.ocr import Recognizer
from ridgerank.documents.render import PageRef
from ridgerank.documents.sources import Failure
from ridgerank.errors import BackboneError, ClusterError
from ridgerank.extras import require_packages
from ridgerank.indexing.encode import (
    EncodedPages,
    EncodingDescription,
    PageEncoder,
    describe_encoding,
    render_batches,
    sample_batches,
)
from ridgerank.indexing.index import (
    Commit,
    IndexReport,
    IndexTask,
    ProgressCallback,
    find_basis,
    list_new_documents,
    run_index,
)
from ridgerank.indexing.names import Listing
from ridgerank.lineage import StorageChoice
from ridgerank.store import layout
from ridgerank.store.lance_dataset import open_dataset
from ridgerank.store.layout import Basis
from ridgerank.store.store_writer import StoreWriter, build_table

LOCAL = "local"
"""The address that means: a cluster of this machine alone, for as long as the command runs."""
FRAGMENT_PAGES = 64
"""Pages per fragment: a lost worker loses at most this much work."""
_COMMIT_SECONDS = 15.0
"""Written fragments wait for a commit no longer than this: an interruption loses at most this much work."""
_MAX_BLOCKS = 4096
"""Blocks Ray Data keeps track of; above this number several fragments share a block."""
_RENDERING_PROCESSES = 2
"""Rendering processes per worker. Without them, a file that crashes its reader would end the worker, and Ray
would pass the file to the next worker, without end."""


@dataclass(frozen=True, slots=True)
class ClusterWorkers:
    """How many workers there are, and the resources of each."""

    count: int
    resources: dict[str, float]
    """Of one worker, as keyword arguments of Ray."""


@contextmanager
def connect_ray(address: str) -> Iterator[Any]:
    """Ray's module, connected to a cluster; a local cluster is stopped at the end."""
    # No usage statistics are sent unless the environment says so.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    require_packages("ray")
    import ray
    import ray.data

    # After the import, which sets its level: progress is shown by our bar alone.
    logging.getLogger("ray.data").setLevel(logging.WARNING)
    if address == LOCAL and ray.is_initialized():
        raise ClusterError(f"this process is connected to a Ray cluster; disconnect to use {LOCAL!r}")
    started_here = not ray.is_initialized()
    if started_here:
        try:
            ray.init(
                address=address,  # Ray, too, calls a new cluster of this machine "local", whatever else runs
                include_dashboard=False if address == LOCAL else None,
                log_to_driver=False,
                logging_level=logging.WARNING,
            )
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise ClusterError(
                f"no Ray cluster at {address!r}: {error}; start one with `ray start --head`, or use {LOCAL!r}"
            ) from error
    try:
        yield ray
    finally:
        if started_here:
            ray.shutdown()


def plan_workers(ray: Any, workers: int | None, device: str | None) -> ClusterWorkers:  # noqa: ANN401 (Ray's module)
    """A worker for every GPU of the cluster; for every CPU if there are none or `device` says so."""
    resources = ray.cluster_resources()
    gpus = 0 if device == "cpu" else int(resources.get("GPU", 0))
    if device is not None and device.startswith("cuda") and not gpus:
        raise BackboneError("no GPU in the Ray cluster; leave the device out, or add machines that have one")
    limit = gpus or int(resources.get("CPU", 1))
    return ClusterWorkers(min(workers or limit, limit), {"num_cpus": 1, "num_gpus": 1 if gpus else 0})


@dataclass(frozen=True, slots=True)
class EncodingPlan:
    """How workers are to encode pages."""

    model: ModelSettings
    storage: StorageChoice
    retriever: str | None = None
    ocr: bool = False
    like: str | None = None
    """The store whose basis a new one takes."""

    def load(self, basis: Basis | None = None) -> PageEncoder:
        """Load the models."""
        backbone = self.model.load()
        storage = self.storage(layers=backbone.geometry.layers, reads_text=backbone.reads_text)
        embedder = None
        if self.retriever is not None:
            from ridgerank.retrievers.encoders import load_encoder

            dtype = parse_dtype(self.model.dtype)
            embedder = load_encoder(self.retriever, device=self.model.device, dtype=dtype)
        return PageEncoder.create(backbone, embedder, storage, basis)


def describe_plan(
    plan: EncodingPlan, uri: str, listing: Listing | None
) -> tuple[EncodingDescription, EncodedPages]:
    """Describe a plan's models, and fit the basis of a new store; runs on a worker, which has the models."""
    encoder = plan.load()
    encoder = PageEncoder.create(
        encoder.backbone, encoder.embedder, encoder.storage, find_basis(uri, plan.like, encoder.storage)
    )
    sampled = EncodedPages()
    if encoder.needs_basis and listing is not None:
        numbered = sample_batches(listing, describe_encoding(encoder).batch_pages)
        recognizer = Recognizer(cache=None) if plan.ocr else None
        max_pixels = encoder.backbone.page_budget
        batches = render_batches(numbered, lambda _: None, recognizer, max_pixels, _RENDERING_PROCESSES)
        encoder, sampled = encoder.fit(batches, listing)
    return describe_encoding(encoder), sampled


def index_on_ray(
    paths: Iterable[str | Path],
    uri: str,
    plan: EncodingPlan,
    *,
    ray: Any,  # noqa: ANN401 (Ray's module)
    workers: ClusterWorkers,
    progress: ProgressCallback | None = None,
    prune: bool = False,
    fragment_pages: int = FRAGMENT_PAGES,
) -> IndexReport:
    """Bring every page under `paths` into the store at `uri`; every machine has to see both.

    The report, and the rows of the store, are those of `index_documents`.
    """
    paths = list(paths)
    new = open_dataset(uri) is None and plan.like is None
    listing = list_new_documents(paths, progress, 1) if new else None
    describe = ray.remote(**workers.resources)(describe_plan)
    description, sampled = ray.get(describe.remote(plan, uri, listing))
    encode = partial(
        _encode_on_ray,
        worker_arguments=(plan, uri, description),
        workers=workers,
        batch_pages=description.batch_pages,
        fragment_pages=fragment_pages,
    )
    return run_index(
        paths,
        uri,
        description,
        encode,
        progress=progress,
        prune=prune,
        listed=listing,
        sampled=sampled,
    )


@dataclass(frozen=True, slots=True)
class FragmentTask:
    """Pages that become one fragment: whole batches of the whole list, without stored pages."""

    batches: tuple[tuple[PageRef, ...], ...]
    references: dict[str, list[str]]
    """Every reference of each page, by page id."""
    stored: frozenset[str]
    """The pages that need only their vectors."""


@dataclass(slots=True)
class FragmentResult:
    """The fragments of a task, and what else came of it."""

    fragments: list[str] = field(default_factory=list)
    """As Lance's JSON."""
    page_ids: list[str] = field(default_factory=list)
    """The pages in them."""
    vectors: dict[str, NDArray[np.float16]] = field(default_factory=dict)
    """Vectors of pages that were stored before."""
    prefix_bytes: int = 0
    nbytes: int = 0
    failures: list[Failure] = field(default_factory=list)


def _encode_on_ray(
    task: IndexTask,
    *,
    worker_arguments: tuple[EncodingPlan, str, EncodingDescription],
    workers: ClusterWorkers,
    batch_pages: int,
    fragment_pages: int,
) -> Iterator[Commit]:
    """Let workers write fragments, and commit those that are written; yields after each commit."""
    tasks = list(_fragment_tasks(task, batch_pages, max(1, fragment_pages // batch_pages)))
    results: list[FragmentResult] = []
    since = time.monotonic()
    for result in _run_on_workers(tasks, worker_arguments, workers):
        for failure in result.failures:
            task.failed(failure)
        results.append(result)
        if time.monotonic() - since >= _COMMIT_SECONDS:
            yield _commit(results, task.writer)
            results, since = [], time.monotonic()
    if results:
        yield _commit(results, task.writer)


def _fragment_tasks(task: IndexTask, batch_pages: int, batches_per_fragment: int) -> Iterator[FragmentTask]:
    numbered = task.listing.number_batches(task.done, batch_pages)
    for _, pages in groupby(numbered, key=lambda page: page[0] // batches_per_fragment):
        by_batch = groupby(pages, key=lambda page: page[0])
        batches = tuple(tuple(ref for _, ref in batch) for _, batch in by_batch)
        page_ids = [ref.page_id for batch in batches for ref in batch]
        references = {page_id: task.listing.references[page_id] for page_id in page_ids}
        yield FragmentTask(batches, references, task.stored.intersection(page_ids))


def _run_on_workers(
    tasks: list[FragmentTask], arguments: tuple[object, ...], workers: ClusterWorkers
) -> Iterator[FragmentResult]:
    """The results of the tasks, in order; Ray repeats what a lost worker had."""
    if not tasks:
        return
    import ray.data
    from ray.data import ActorPoolStrategy, DataContext
    from ray.exceptions import RayError

    context = DataContext.get_current()
    context.execution_options.preserve_order = True
    context.enable_progress_bars = False
    blocks = min(len(tasks), _MAX_BLOCKS)
    inputs = [{"task": pickle.dumps(task)} for task in tasks]
    dataset = ray.data.from_items(inputs, override_num_blocks=blocks).map_batches(
        EncodingWorker,
        fn_constructor_args=arguments,
        batch_size=1,
        compute=ActorPoolStrategy(size=min(workers.count, blocks)),
        **workers.resources,
    )
    try:
        for row in dataset.iter_rows():
            yield pickle.loads(row["result"])
    except RayError as error:
        lines = str(error).strip().splitlines()
        raise ClusterError(
            f"encoding on Ray failed: {lines[-1] if lines else type(error).__name__}; "
            "what was committed is safe: run it again"
        ) from error


def _commit(results: list[FragmentResult], writer: StoreWriter) -> Commit:
    page_ids = [page_id for result in results for page_id in result.page_ids]
    writer.append_fragments([fragment for result in results for fragment in result.fragments], page_ids)
    vectors = {page_id: vectors for result in results for page_id, vectors in result.vectors.items()}
    writer.set_vectors(vectors)
    prefix_bytes = sum(result.prefix_bytes for result in results)
    nbytes = prefix_bytes + sum(result.nbytes for result in results)
    return Commit(len(page_ids), len(vectors), prefix_bytes, nbytes)


class EncodingWorker:
    """Models that stay loaded between tasks; Ray Data holds a pool of these workers."""

    def __init__(self, plan: EncodingPlan, uri: str, description: EncodingDescription) -> None:
        self._uri = uri
        self._page_encoder = plan.load(description.basis)
        # A machine with another release of transformers is detected only here.
        loaded = describe_encoding(self._page_encoder)
        loaded.lineage.require(description.lineage, artifact="what this worker makes")
        if loaded.origin is not None and description.origin is not None:
            loaded.origin.require(description.origin, artifact="what this worker makes")
        self._recognizer = Recognizer(cache=None) if plan.ocr else None

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Pickled tasks in, pickled results out."""
        results = np.empty(len(batch["task"]), dtype=object)
        results[:] = [pickle.dumps(self.encode(pickle.loads(task))) for task in batch["task"]]
        return {"result": results}

    def encode(self, task: FragmentTask) -> FragmentResult:
        """Encode the pages of a task and write the new ones as a fragment."""
        result = FragmentResult()
        schema = lance.dataset(self._uri).schema
        batches = self._encode_batches(task, result, schema)
        first = next(batches, None)
        if first is None:
            return result
        stream = pa.RecordBatchReader.from_batches(schema, chain([first], batches))
        written = write_fragments(
            stream, self._uri, schema=schema, data_storage_version=layout.LANCE_FILE_VERSION
        )
        result.fragments = [json.dumps(fragment.to_json()) for fragment in written]
        return result

    def _encode_batches(
        self, task: FragmentTask, result: FragmentResult, schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        """Rows of one batch of pages after the other: a worker holds one batch in memory."""
        refs = {ref.page_id: ref for batch in task.batches for ref in batch}
        listing = Listing(refs=refs, references=task.references)
        numbered = ((number, ref) for number, batch in enumerate(task.batches) for ref in batch)
        max_pixels = self._page_encoder.backbone.page_budget
        failed = result.failures.append
        for pages in render_batches(numbered, failed, self._recognizer, max_pixels, _RENDERING_PROCESSES):
            encoded = self._page_encoder.encode(pages, listing, task.stored)
            result.vectors |= encoded.vectors
            result.page_ids += [row.page.page_id for row in encoded.rows]
            result.nbytes += encoded.vector_bytes
            if encoded.rows:
                table = build_table(encoded.rows, schema)
                result.prefix_bytes += sum(table.column(layout.PREFIX_BYTES).to_pylist())
                yield from table.to_batches()
