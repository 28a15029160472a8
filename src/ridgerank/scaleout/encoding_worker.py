"""What a worker does with pages: render, encode, compress, and write them as a fragment beside the store.

The page encoder and the batches are those of one machine, so the bytes are those of a local run. A fragment
belongs to no version of the store until it is committed (`ray_indexing.py`); the fragment of a worker that
died is never committed and is removed by a later sweep.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain

import lance
import numpy as np
import pyarrow as pa
from lance.fragment import write_fragments
from numpy.typing import NDArray

from ridgerank.backbones.model_settings import ModelSettings
from ridgerank.documents.render import PageRef
from ridgerank.documents.sources import Failure
from ridgerank.indexing.encode import EncodedPages, PageEncoder, default_batch_pages
from ridgerank.indexing.names import Listing, render_batches
from ridgerank.lineage import Lineage, StorageChoice
from ridgerank.scaleout.ray_datasets import Rows, map_records
from ridgerank.store import layout
from ridgerank.store.codec import encode_shared
from ridgerank.store.layout import SharedPositions
from ridgerank.store.store_writer import build_table
from ridgerank.store.vector_columns import VectorOrigin

_RENDERING_PROCESSES = 2
"""Rendering processes per worker. Without them, a file that crashes its reader would end the worker, and Ray
would pass the file to the next worker, without end."""


@dataclass(frozen=True, slots=True)
class EncodingPlan:
    """How pages are to be encoded."""

    model: ModelSettings
    storage: StorageChoice
    retriever: str | None = None
    ocr: bool = False


@dataclass(frozen=True, slots=True)
class EncodingDescription:
    """What the models of a plan are, as a worker finds after loading them."""

    lineage: Lineage
    batch_pages: int
    origin: VectorOrigin | None
    reads_text: bool
    shared: SharedPositions | None = None
    """The positions before the page, where the store holds them once."""


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


def load_page_encoder(plan: EncodingPlan) -> tuple[PageEncoder, EncodingDescription]:
    """Load the models of a plan, and describe them."""
    backbone = plan.model.load()
    storage = plan.storage(layers=backbone.geometry.layers, reads_text=backbone.reads_text)
    backbone.geometry.require_layers(storage.exit_layer)
    embedder = None
    if plan.retriever is not None:
        from ridgerank.backbones.load import parse_dtype
        from ridgerank.retrievers.encoders import load_encoder

        embedder = load_encoder(
            plan.retriever,
            device=plan.model.device,
            dtype=parse_dtype(plan.model.dtype),
        )
    lineage = backbone.lineage(storage)
    shared = encode_shared(backbone, storage)
    origin = None if embedder is None else embedder.origin
    page_encoder = PageEncoder(backbone, embedder, storage, shared)
    return page_encoder, EncodingDescription(
        lineage, default_batch_pages(backbone), origin, backbone.reads_text, shared
    )


def describe_encoding(plan: EncodingPlan) -> EncodingDescription:
    """Describe the models of a plan; runs on a worker, which has them."""
    return load_page_encoder(plan)[1]


class EncodingWorker:
    """Models that stay loaded between tasks; Ray Data holds a pool of these workers."""

    def __init__(self, plan: EncodingPlan, uri: str, description: EncodingDescription) -> None:
        self._uri = uri
        self._page_encoder, loaded = load_page_encoder(plan)
        # A machine with another release of transformers is detected only here.
        loaded.lineage.require(description.lineage, artifact="what this worker makes")
        if loaded.origin is not None and description.origin is not None:
            loaded.origin.require(description.origin, artifact="what this worker makes")
        self._recognizer = None
        if plan.ocr:
            from ridgerank.documents.ocr import Recognizer

            self._recognizer = Recognizer(cache=None)

    def __call__(self, batch: Rows) -> Rows:
        """Tasks in, results out."""
        return map_records(batch, self.encode)

    def encode(self, task: FragmentTask) -> FragmentResult:
        """Encode the pages of a task and write the new ones as a fragment."""
        result = FragmentResult()
        schema = lance.dataset(self._uri).schema
        batches = self._batches(task, result, schema)
        first = next(batches, None)
        if first is None:
            return result
        stream = pa.RecordBatchReader.from_batches(schema, chain([first], batches))
        written = write_fragments(
            stream, self._uri, schema=schema, data_storage_version=layout.LANCE_FILE_VERSION
        )
        result.fragments = [json.dumps(fragment.to_json()) for fragment in written]
        return result

    def _batches(
        self, task: FragmentTask, result: FragmentResult, schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        """Rows of one batch of pages after the other: a worker holds one batch in memory."""
        for encoded in self._encode_batches(task, result):
            result.vectors |= encoded.vectors
            result.page_ids += [row.page.page_id for row in encoded.rows]
            result.prefix_bytes += encoded.prefix_bytes
            result.nbytes += encoded.nbytes
            if encoded.rows:
                yield from build_table(encoded.rows, schema).to_batches()

    def _encode_batches(self, task: FragmentTask, result: FragmentResult) -> Iterator[EncodedPages]:
        refs = {ref.page_id: ref for batch in task.batches for ref in batch}
        listing = Listing(refs=refs, references=task.references)
        numbered = ((number, ref) for number, batch in enumerate(task.batches) for ref in batch)
        max_pixels = self._page_encoder.backbone.page_budget
        failed = result.failures.append
        for pages in render_batches(numbered, failed, self._recognizer, max_pixels, _RENDERING_PROCESSES):
            yield self._page_encoder.encode(pages, listing, task.stored)
