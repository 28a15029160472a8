"""Documents into a store by way of Ray Data: workers encode pages, this process commits them.

Listing, encoder, batches and commits are those of one machine (`index.py`): so are the bytes, and an
interrupted run can be continued with Ray or without. Workers have the environment of their machine, with
credentials of an object store.
"""

import logging
import os
import pickle
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from ridgerank.backbones.load import parse_dtype
from ridgerank.backbones.model_settings import ModelSettings
from ridgerank.documents.ocr import Recognizer
from ridgerank.documents.render import PageRef
from ridgerank.documents.sources import Failure
from ridgerank.errors import BackboneError, ClusterError
from ridgerank.extras import require_packages
from ridgerank.indexing import index
from ridgerank.indexing.encode import (
    EncodedPages,
    EncodingDescription,
    Listing,
    PageEncoder,
    describe_encoding,
    render_batches,
    sample_batches,
)
from ridgerank.lineage import StorageChoice
from ridgerank.store.lance_dataset import open_dataset
from ridgerank.store.layout import Basis

LOCAL = "local"
_TASK_PAGES = 64
"""Pages per task: a lost worker loses at most this much work."""
_MAX_BLOCKS = 4096
"""Blocks Ray Data keeps track of; above this number several tasks share a block."""
_RENDERING_PROCESSES = 2
"""Rendering processes per worker. Without them, a file that crashes its reader would end the worker, and Ray
would pass the file to the next worker, without end."""


@dataclass(frozen=True, slots=True)
class ClusterWorkers:
    """How many workers there are, and the resources of each."""

    count: int
    resources: dict[str, float]


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

    def load(self, basis: Basis | None = None, *, uri: str | None = None) -> PageEncoder:
        """Load the models; the basis is the one given, or that of the store at `uri` if there is one."""
        backbone = self.model.load()
        storage = self.storage(layers=backbone.geometry.layers, reads_text=backbone.reads_text)
        embedder = None
        if self.retriever is not None:
            from ridgerank.retrievers.encoders import load_encoder

            dtype = parse_dtype(self.model.dtype)
            embedder = load_encoder(self.retriever, device=self.model.device, dtype=dtype)
        if uri is not None:
            basis = index.find_basis(uri, self.like, storage)
        return PageEncoder.create(backbone, embedder, storage, basis)


def describe_plan(
    plan: EncodingPlan, uri: str, listing: Listing | None
) -> tuple[EncodingDescription, EncodedPages]:
    """Describe a plan's models, and fit the basis of a new store; runs on a worker, which has the models."""
    encoder = plan.load(uri=uri)
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
    progress: index.ProgressCallback | None = None,
    prune: bool = False,
) -> index.IndexReport:
    """Like `index_documents`, with the same rows and report; every machine has to see paths and store."""
    paths = list(paths)
    new = open_dataset(uri) is None and plan.like is None
    listing = index.list_new_documents(paths, progress, 1) if new else None
    describe = ray.remote(**workers.resources)(describe_plan)
    description, sampled = ray.get(describe.remote(plan, uri, listing))
    return index.run_index(
        paths,
        uri,
        description,
        partial(_encode_on_ray, plan=plan, description=description, workers=workers),
        progress=progress,
        prune=prune,
        listed=listing,
        sampled=sampled,
    )


@dataclass(frozen=True, slots=True)
class PageTask:
    """Pages that one worker encodes: whole batches of the whole list, without those that are done."""

    batches: tuple[tuple[PageRef, ...], ...]
    references: dict[str, list[str]]
    """Every reference of each page, by page id."""
    stored: frozenset[str]
    """The pages that need only their vectors."""


def _encode_on_ray(
    task: index.IndexTask, *, plan: EncodingPlan, description: EncodingDescription, workers: ClusterWorkers
) -> Iterator[EncodedPages]:
    """What workers make of the tasks, in order; Ray repeats what a lost worker had."""
    tasks = list(_page_tasks(task, description.batch_pages))
    if not tasks:
        return
    import ray.data
    from ray.data import ActorPoolStrategy, DataContext
    from ray.exceptions import RayError

    context = DataContext.get_current()
    context.execution_options.preserve_order = True
    context.enable_progress_bars = False
    blocks = min(len(tasks), _MAX_BLOCKS)
    inputs = [{"task": pickle.dumps(each)} for each in tasks]
    dataset = ray.data.from_items(inputs, override_num_blocks=blocks).map_batches(
        EncodingWorker,
        fn_constructor_args=(plan, description),
        batch_size=1,
        compute=ActorPoolStrategy(size=min(workers.count, blocks)),
        **workers.resources,
    )
    try:
        for row in dataset.iter_rows():
            encoded, failures = pickle.loads(row["result"])
            for failure in failures:
                task.failed(failure)
            yield encoded
    except RayError as error:
        lines = str(error).strip().splitlines()
        raise ClusterError(
            f"encoding on Ray failed: {lines[-1] if lines else type(error).__name__}; "
            "what was committed is safe: run it again"
        ) from error


def _page_tasks(task: index.IndexTask, batch_pages: int) -> Iterator[PageTask]:
    numbered = task.listing.number_batches(task.done, batch_pages)
    batches_per_task = max(1, _TASK_PAGES // batch_pages)
    for _, pages in groupby(numbered, key=lambda page: page[0] // batches_per_task):
        by_batch = groupby(pages, key=lambda page: page[0])
        batches = tuple(tuple(ref for _, ref in batch) for _, batch in by_batch)
        page_ids = [ref.page_id for batch in batches for ref in batch]
        references = {page_id: task.listing.references[page_id] for page_id in page_ids}
        yield PageTask(batches, references, task.stored.intersection(page_ids))


class EncodingWorker:
    """Models that stay loaded between tasks; Ray Data holds a pool of these workers."""

    def __init__(self, plan: EncodingPlan, description: EncodingDescription) -> None:
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

    def encode(self, task: PageTask) -> tuple[EncodedPages, list[Failure]]:
        """The pages of a task, encoded, and those that could not be read."""
        listing = Listing({ref.page_id: ref for batch in task.batches for ref in batch}, task.references)
        numbered = ((number, ref) for number, batch in enumerate(task.batches) for ref in batch)
        max_pixels = self._page_encoder.backbone.page_budget
        failures: list[Failure] = []
        encoded = EncodedPages()
        for pages in render_batches(
            numbered, failures.append, self._recognizer, max_pixels, _RENDERING_PROCESSES
        ):
            encoded += self._page_encoder.encode(pages, listing, task.stored)
        return encoded, failures
