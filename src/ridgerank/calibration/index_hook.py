"""Indexing and calibrating in one pass: targets are taken while a page is in memory at full depth.

Which pages a query will have as candidates is foreseen before any page is encoded: from the documents' text,
or by embedding the pages first (`embed_ahead.py`). What was not foreseen (a page that could not be rendered
after all, or whose text only OCR reads) is looked at again by `calibrate`: a plan that errs costs time, never
exactness.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from ridgerank.backbones.base import Backbone
from ridgerank.backbones.prefix import Prefix
from ridgerank.calibration.calibrate import CalibrationRequest, different
from ridgerank.calibration.candidate_lists import find_candidates
from ridgerank.calibration.ridge_fit import LEAST_LISTS
from ridgerank.calibration.synthetic_queries import queries_from_texts
from ridgerank.calibration.target_cache import TargetCache
from ridgerank.calibration.teacher import Teacher
from ridgerank.documents.pages import PageRef, read_texts
from ridgerank.retrievers.base import Retriever
from ridgerank.store.page_store import PageStore
from ridgerank.store.sidecar import calibrations_folder


@dataclass(frozen=True, slots=True, eq=False)
class PlannedPages:
    """Pages stored, and those that are about to be."""

    uri: str
    by_page: Mapping[str, str]
    """The text of all of them, by page id."""
    refs: Sequence[PageRef]
    """Those that are not stored yet."""

    def texts(self) -> dict[str, str]:
        """The text of every page, by page id."""
        return dict(self.by_page)


PlanRetriever: TypeAlias = Callable[[PlannedPages], Retriever | None]
"""Makes a retriever over pages that are not all stored yet, None where it cannot: `BM25`, for one."""


class OnePass:
    """An `EncodeHook` that foresees candidates and takes their targets while they are indexed."""

    def __init__(
        self,
        uri: str,
        backbone: Backbone,
        request: CalibrationRequest,
        plan_with: PlanRetriever,
        *,
        folder: Path | None = None,
    ) -> None:
        """`folder` is where targets are kept: by default, beside the store on a local disk."""
        self._uri = uri
        self._backbone = backbone
        self._request = request
        self._plan_with = plan_with
        self._folder = calibrations_folder(uri) if folder is None else folder
        self._teacher: Teacher | None = None

    def listed(self, refs: Mapping[str, PageRef], stored: frozenset[str]) -> None:
        """Make the queries, search the texts, and note which targets are wanted."""
        with PageStore.open(self._uri) as store:
            texts, lineage = store.texts(), store.lineage
        unstored = [ref for page_id, ref in refs.items() if page_id not in stored]
        texts |= dict(read_texts(unstored))
        request = self._request
        queries = different(request.queries) or queries_from_texts(texts, request.count).queries
        if len(queries) < LEAST_LISTS:
            return  # the model has to be asked for queries, and that takes a look of its own
        retriever = self._plan_with(PlannedPages(self._uri, texts, unstored))
        if retriever is None:
            return
        candidates = find_candidates(retriever, queries, request.candidates)
        cache = TargetCache(self._folder, lineage)
        self._teacher = Teacher(self._backbone, cache, targets=request.targets)
        self._teacher.want({query.text: found for query, found in candidates.items()})

    def wants(self, page_id: str) -> bool:
        """Whether this page is a candidate of some query."""
        return self._teacher is not None and self._teacher.wants(page_id)

    def encoded(self, page_ids: Sequence[str], prefixes: Sequence[Prefix]) -> None:
        """Take the targets of candidates."""
        if self._teacher is not None:
            self._teacher.look(page_ids, prefixes)
