"""Indexing and calibrating in one go: the targets of a calibration are computed while pages are indexed."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypedDict, Unpack

from ridgerank.backbones.base import Backbone
from ridgerank.calibration.artifact import DEFAULT_NAME, Calibration
from ridgerank.calibration.calibrate import CANDIDATES, calibrate
from ridgerank.calibration.embed_ahead import AheadEmbedder
from ridgerank.calibration.hooks import CalibrationHook
from ridgerank.calibration.index_hook import TargetHook
from ridgerank.calibration.query_choice import QUERIES
from ridgerank.documents.ocr import Recognizer
from ridgerank.indexing.index import index_documents
from ridgerank.indexing.progress import IndexHook, IndexReport
from ridgerank.records import Query
from ridgerank.retrievers.base import Retriever
from ridgerank.retrievers.bm25 import BM25
from ridgerank.retrievers.encoders.base import MultiVectorEncoder
from ridgerank.retrievers.late_interaction import LateInteraction
from ridgerank.store.number_format import NumberFormat
from ridgerank.store.page_store import PageStore
from ridgerank.store.pruning import Keep
from ridgerank.store.sidecar import edit_calibrations
from ridgerank.store.storage_setting import StoragePreset


class IndexOptions(TypedDict, total=False):
    """What `index_documents` takes besides documents, store, models and hooks."""

    exit_layer: int | None
    join_layer: int
    keep: Keep | None
    numbers: NumberFormat | None
    preset: StoragePreset
    prune: bool
    processes: int | None
    batch_pages: int | None
    recognizer: Recognizer | None


def index_and_calibrate(
    documents: Iterable[str | Path],
    store: str,
    backbone: Backbone,
    *,
    encoder: MultiVectorEncoder | None = None,
    queries: Sequence[Query] | None = None,
    name: str = DEFAULT_NAME,
    candidates: int = CANDIDATES,
    query_count: int = QUERIES,
    index_hook: IndexHook,
    calibration_hook: CalibrationHook | None = None,
    **options: Unpack[IndexOptions],
) -> tuple[IndexReport, Calibration]:
    """Index documents and calibrate the store, with each page encoded once.

    With an `encoder` its vectors are stored and searched, else BM25 searches the pages' text.
    """
    report = index_with_targets(
        documents,
        store,
        backbone,
        encoder=encoder,
        queries=queries,
        candidates=candidates,
        query_count=query_count,
        hook=index_hook,
        **options,
    )
    with PageStore.open(store) as pages:
        retriever: Retriever = BM25(pages) if encoder is None else LateInteraction(encoder, pages)
        retriever_source = "bm25" if encoder is None else encoder.origin.source
        calibration = calibrate(
            pages,
            backbone=backbone,
            retriever=retriever,
            retriever_source=retriever_source,
            queries=queries,
            name=name,
            candidates=candidates,
            query_count=query_count,
            hook=calibration_hook,
        )
    return report, calibration


def index_with_targets(
    documents: Iterable[str | Path],
    store: str,
    backbone: Backbone,
    *,
    encoder: MultiVectorEncoder | None = None,
    queries: Sequence[Query] | None = None,
    candidates: int = CANDIDATES,
    query_count: int = QUERIES,
    hook: IndexHook,
    **options: Unpack[IndexOptions],
) -> IndexReport:
    """Index documents and compute the targets of a later `calibrate` with the same arguments."""
    embedder = None if encoder is None else AheadEmbedder(encoder, max_pixels=backbone.page_budget)
    with edit_calibrations(store) as folder:
        target_hook = TargetHook(
            store,
            backbone,
            BM25 if embedder is None else embedder.make_retriever,
            queries=queries,
            query_count=query_count,
            candidates=candidates,
            folder=folder,
        )
        return index_documents(
            documents, store, backbone, hook=hook, embedder=embedder, encode_hook=target_hook, **options
        )
