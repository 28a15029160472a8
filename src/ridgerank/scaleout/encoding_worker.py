"""What a worker does with pages: render, encode, compress, and write them as a fragment beside the store.

The same reader as on one machine, over batches cut from the whole list in the same way: the bytes are those
of a local run. A fragment belongs to no version of the store until it is committed (`ray_indexing.py`);
that of a worker which died is never committed and is removed by a later sweep.
"""

import json
import pickle
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import lance
import numpy as np
import pyarrow as pa
from lance.fragment import write_fragments
from numpy.typing import NDArray

from ridgerank.documents.failures import Failure
from ridgerank.documents.pages import PageRef
from ridgerank.indexing.encode import Made, PageReader, default_batch_pages
from ridgerank.indexing.listing import Listing, rendered
from ridgerank.lineage import Lineage
from ridgerank.scaleout.ray_cluster import ModelPlan
from ridgerank.store import layout, rows
from ridgerank.store.model_lineage import default_exit_layer, lineage_of
from ridgerank.store.pruning import Keep
from ridgerank.store.vector_columns import VectorOrigin

_RENDERING = 2
"""Processes of a worker that render: a file that crashes its reader would else take the worker along, and Ray
would give it to the next one, for ever."""


@dataclass(frozen=True, slots=True)
class EncodingPlan:
    """How pages are to be read."""

    model: ModelPlan
    keep: str
    exit_layer: int | None
    join_layer: int
    retriever: str | None = None
    pool_factor: int = 1
    ocr: bool = False


@dataclass(frozen=True, slots=True)
class Described:
    """What a worker has found its models to be."""

    lineage: Lineage
    batch_pages: int
    origin: VectorOrigin | None
    reads_text: bool


@dataclass(frozen=True, slots=True)
class Portion:
    """Pages that become one fragment: whole batches of the whole list, less what is stored."""

    batches: tuple[tuple[PageRef, ...], ...]
    names: dict[str, list[str]]
    """Every name of each page, by page id."""
    stored: frozenset[str]
    """Those of them that lack nothing but their vectors."""


@dataclass(slots=True)
class Encoded:
    """What came of a portion."""

    fragments: list[str] = field(default_factory=list)
    """As Lance's JSON."""
    page_ids: list[str] = field(default_factory=list)
    """The pages in them."""
    vectors: dict[str, NDArray[np.float16]] = field(default_factory=dict)
    """Vectors of pages that were stored before."""
    prefix_bytes: int = 0
    nbytes: int = 0
    failures: list[Failure] = field(default_factory=list)


def reader_of(plan: EncodingPlan) -> tuple[PageReader, Described]:
    """Load the models of a plan and say what they are."""
    backbone = plan.model.load()
    keep = Keep.parse(plan.keep)
    exit_layer = plan.exit_layer or default_exit_layer(backbone.geometry.layers)
    backbone.geometry.require_layers(plan.join_layer, exit_layer)
    embedder = None
    if plan.retriever is not None:
        from ridgerank.backbones.load import parse_dtype
        from ridgerank.retrievers.encoders.load import load_encoder

        embedder = load_encoder(
            plan.retriever,
            device=plan.model.device,
            dtype=parse_dtype(plan.model.dtype),
            pool_factor=plan.pool_factor,
        )
    lineage = lineage_of(backbone, exit_layer=exit_layer, join_layer=plan.join_layer, keep=keep)
    origin = None if embedder is None else embedder.origin
    reader = PageReader(backbone, embedder, None, exit_layer, plan.join_layer, keep)
    return reader, Described(lineage, default_batch_pages(backbone), origin, backbone.reads_text)


def describe(plan: EncodingPlan) -> Described:
    """What a store made with this plan is made with: found on a worker, which has the model."""
    return reader_of(plan)[1]


class EncodingWorker:
    """Models that stay loaded while portions come by; Ray Data holds a pool of them."""

    def __init__(self, plan: EncodingPlan, uri: str, described: Described) -> None:
        self._uri = uri
        self._reader, found = reader_of(plan)
        # Another release of transformers on one machine of many would be found nowhere else.
        found.lineage.require(described.lineage, artifact="what this worker makes")
        if found.origin is not None and described.origin is not None:
            found.origin.require(described.origin, artifact="what this worker makes")
        self._recognizer = None
        if plan.ocr:
            from ridgerank.documents.ocr import Recognizer

            self._recognizer = Recognizer(cache=None)

    def __call__(self, given: dict[str, Any]) -> dict[str, Any]:
        """One portion in, as Ray Data hands it over; what came of it out."""
        [portion] = given["portion"]
        return {"encoded": np.array([pickle.dumps(self.encode(pickle.loads(portion)))], dtype=object)}

    def encode(self, portion: Portion) -> Encoded:
        """Read the pages of a portion and write those that are new as a fragment."""
        found = Encoded()
        schema = lance.dataset(self._uri).schema
        batches = self._batches(portion, found, schema)
        first = next(batches, None)
        if first is None:
            return found
        stream = pa.RecordBatchReader.from_batches(schema, _chained(first, batches))
        written = write_fragments(
            stream, self._uri, schema=schema, data_storage_version=layout.LANCE_FILE_VERSION
        )
        found.fragments = [json.dumps(fragment.to_json()) for fragment in written]
        return found

    def _batches(self, portion: Portion, found: Encoded, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Rows of one batch of pages after the other: a worker holds no more than these."""
        for made in self._made(portion, found):
            found.vectors |= made.vectors
            found.page_ids += [row.page.page_id for row in made.rows]
            found.prefix_bytes += made.prefix_bytes
            found.nbytes += made.nbytes
            if made.rows:
                yield from rows.to_table(made.rows, schema).to_batches()

    def _made(self, portion: Portion, found: Encoded) -> Iterator[Made]:
        refs = {ref.page_id: ref for batch in portion.batches for ref in batch}
        listing = Listing(refs=refs, names=portion.names)
        numbered = ((number, ref) for number, batch in enumerate(portion.batches) for ref in batch)
        max_pixels = self._reader.backbone.max_pixels
        failed = found.failures.append
        for pages in rendered(numbered, failed, self._recognizer, max_pixels, _RENDERING):
            yield self._reader.read(pages, listing, portion.stored)


def _chained(first: pa.RecordBatch, others: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from others
