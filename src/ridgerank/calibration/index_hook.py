"""Targets computed while pages are indexed and in memory at full depth: no page is encoded twice.

The candidates of each query are predicted before any page is encoded: from the documents' text, or by
embedding the pages first (`embed_ahead.py`). A page that was not predicted (it could not be rendered after
all, or only OCR reads its text) is encoded again by `calibrate`: a wrong prediction costs time, not accuracy.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from ridgerank.backbones.base import Backbone
from ridgerank.backbones.prefix import Prefix
from ridgerank.backbones.presets import available_targets
from ridgerank.calibration.calibrate import CANDIDATES
from ridgerank.calibration.candidate_lists import find_candidates
from ridgerank.calibration.query_choice import QUERIES, unique_queries
from ridgerank.calibration.ridge_fit import LEAST_LISTS
from ridgerank.calibration.synthetic_queries import queries_from_texts
from ridgerank.calibration.target_cache import TargetCache
from ridgerank.calibration.teacher import Teacher
from ridgerank.documents.pages import PageRef, read_texts
from ridgerank.records import Query
from ridgerank.retrievers.base import Retriever
from ridgerank.store.page_store import PageStore
from ridgerank.store.sidecar import calibrations_folder


@dataclass(frozen=True, slots=True, eq=False)
class PendingCorpus:
    """The pages of a store, together with those about to be stored."""

    uri: str
    text_by_page: Mapping[str, str]
    """The text of all of them, by page id."""
    pending: Sequence[PageRef]
    """Those that are not stored yet."""

    def texts(self) -> dict[str, str]:
        """The text of every page, by page id."""
        return dict(self.text_by_page)


RetrieverFactory: TypeAlias = Callable[[PendingCorpus], Retriever | None]
"""Builds a retriever over pages that are not all stored yet, None where it cannot: `BM25`, for one."""


class TargetHook:
    """An `EncodeHook` that predicts candidates and computes their targets while they are indexed."""

    def __init__(
        self,
        uri: str,
        backbone: Backbone,
        make_retriever: RetrieverFactory,
        *,
        queries: Sequence[Query] | None = None,
        query_count: int = QUERIES,
        candidates: int = CANDIDATES,
        folder: Path | None = None,
    ) -> None:
        """Targets are stored in `folder`: by default, beside the store on a local disk."""
        self._uri = uri
        self._backbone = backbone
        self._make_retriever = make_retriever
        self._queries = unique_queries(queries or ())
        self._query_count = query_count
        self._candidates = candidates
        self._folder = calibrations_folder(uri) if folder is None else folder
        self._teacher: Teacher | None = None

    def listed(self, refs: Mapping[str, PageRef], stored: frozenset[str]) -> None:
        """Generate the queries, search the texts, and request the missing targets."""
        with PageStore.open(self._uri) as store:
            texts, lineage = store.texts(), store.lineage
        pending = [ref for page_id, ref in refs.items() if page_id not in stored]
        texts |= dict(read_texts(pending))
        queries = self._queries or queries_from_texts(texts, self._query_count).queries
        if len(queries) < LEAST_LISTS:
            return  # the model has to write queries first, for pages that are stored
        retriever = self._make_retriever(PendingCorpus(self._uri, texts, pending))
        if retriever is None:
            return
        lists = find_candidates(retriever, queries, self._candidates)
        targets = available_targets(lineage.prompt_name)
        self._teacher = Teacher(self._backbone, TargetCache(self._folder, lineage), targets=targets)
        self._teacher.request({query.text: candidates for query, candidates in lists.items()})

    def wants(self, page_id: str) -> bool:
        """Whether this page is a candidate of some query."""
        return self._teacher is not None and self._teacher.wants(page_id)

    def encoded(self, page_ids: Sequence[str], prefixes: Sequence[Prefix]) -> None:
        """Compute the targets of candidates."""
        if self._teacher is not None:
            self._teacher.compute(page_ids, prefixes)
