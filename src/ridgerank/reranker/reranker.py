"""What users import: a store, a calibration and a retriever joined, queries in, rankings out.

    with Reranker.open("pages") as reranker:
        for page in reranker.search("operating margin in 2019").pages:
            print(page.rank, page.reference, page.reason)

A request: candidates with the retriever's scores, states over their stored prefixes, one product with the
readout, eq. 2 at the calibrated weight (`candidates.py`). Safe for any number of threads.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Self, SupportsFloat, TypedDict, Unpack

import numpy as np
import torch

from ridgerank.backbones.base import Backbone
from ridgerank.backbones.load import parse_dtype
from ridgerank.backbones.model_settings import ModelSettings
from ridgerank.calibration.artifact import DEFAULT_NAME, Calibration
from ridgerank.calibration.weight import equal_weight
from ridgerank.errors import BackboneError, ExtraMissing, RetrieverError, ScoreError, UnreadablePages
from ridgerank.fusion.standardize import standardize
from ridgerank.processes import IsolatedProcess
from ridgerank.ragged import Ragged
from ridgerank.records import Explanation, Page, Ranking, validate_query
from ridgerank.reranker.candidates import (
    CandidateList,
    Candidates,
    ListOptions,
    UnstoredPages,
    collect_scores,
    drop_low_scores,
    drop_unreadable,
    match_documents,
    rank_states,
    require_min_score,
    run_lists,
    sort_candidates,
    to_documents,
)
from ridgerank.reranker.explain import explain
from ridgerank.reranker.options import CalibratedStore, open_calibrated
from ridgerank.retrievers.base import Retriever
from ridgerank.retrievers.bm25 import BM25, score_texts
from ridgerank.retrievers.load import load_retriever
from ridgerank.scoring.shallow import ShallowPass
from ridgerank.store.layout import PackedPrefix
from ridgerank.store.page_filter import PageFilter
from ridgerank.store.page_store import CACHE_BYTES, CacheCounts

log = logging.getLogger(__name__)

CANDIDATES = 20
"""K, as in the paper."""

UNSTORED_BYTES = 128 << 20
"""Pages that are in no store and stay in memory for a while: few of them are sent again."""


class SearchOptions(TypedDict, total=False):
    """How `Reranker.search` searches."""

    k: int
    """Candidates that are reranked, 20 by default."""
    top_k: int
    """Pages returned at most, 5 by default."""
    min_score: float | None
    """Leave out pages whose relevance score is below this, all of them if need be."""
    within: PageFilter | None
    """Search only these pages."""


class Reranker:
    """Ranks the pages of one store; a context manager that closes the store, not the model.

    Pass the same `Backbone` to several of them: the model is then in memory once.
    """

    def __init__(
        self,
        shallow: ShallowPass,
        calibration: Calibration,
        *,
        retriever: Retriever | None = None,
        device: str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Join parts that were made for each other; `open` finds them by name.

        Without a retriever, that of the calibration is loaded on `device` in `dtype` when it is first needed.
        """
        self.store = shallow.store
        self.backbone = shallow.backbone
        self.calibration = calibration
        calibration.readout.lineage.require(self.store.lineage, artifact="the calibration")
        self._shallow = shallow
        self._retriever = retriever
        self._place = (device, dtype)
        self._loading = Lock()
        self._reader = IsolatedProcess()  # started when a document is first read
        self._missing = False
        """Whether a retriever was tried in vain."""
        self._unstored = UnstoredPages(
            shallow.backbone, self.store.lineage, capacity_bytes=UNSTORED_BYTES, basis=self.store.basis
        )

    @classmethod
    def open(
        cls,
        store: str | Path | CalibratedStore,
        *,
        readout: str = DEFAULT_NAME,
        backbone: Backbone | str | Path | None = None,
        retriever: Retriever | str | None = None,
        cache_bytes: int = CACHE_BYTES,
        device: str | None = None,
        dtype: str | torch.dtype | None = None,
    ) -> Self:
        """Open a calibrated store: its own model and retriever unless others are given.

        `readout` names one of the calibrations beside the store. The retriever is loaded when it is first
        needed: candidates that come with scores do not need one. `cache_bytes` of prefixes stay in memory.
        """
        opened, calibration = store if isinstance(store, tuple) else open_calibrated(store, readout)
        dtype = parse_dtype(dtype)
        if not isinstance(backbone, Backbone):
            name = None if backbone is None else str(backbone)
            settings = ModelSettings.from_lineage(opened.lineage, name=name, device=device, dtype=dtype)
            backbone = settings.load(opened.lineage.storage.exit_layer)
        if isinstance(retriever, str):
            retriever = load_retriever(retriever, opened, device=device, dtype=dtype)
        shallow = ShallowPass(backbone, opened, cache_bytes=cache_bytes)
        return cls(shallow, calibration, retriever=retriever, device=device, dtype=dtype)

    def over(self, parts: CalibratedStore, *, retriever: Retriever | str | None = None) -> "Reranker":
        """A reranker over another store, or a later state of this one, with the same model and page cache.

        The other store must have been made with the same model. Each is closed on its own.
        """
        device, dtype = self._place
        if isinstance(retriever, str):
            retriever = load_retriever(retriever, parts.pages, device=device, dtype=dtype)
        shallow = self._shallow.over(parts.pages)
        return Reranker(shallow, parts.calibration, retriever=retriever, device=device, dtype=dtype)

    @property
    def retriever(self) -> Retriever:
        """What searches, and scores pages that come without: the calibration's unless one was given."""
        with self._loading:
            if self._retriever is None:
                device, dtype = self._place
                source = self.calibration.retriever_source
                self._retriever = load_retriever(source, self.store, device=device, dtype=dtype)
            return self._retriever

    def rank(
        self,
        query: str,
        candidates: Candidates,
        *,
        top_k: int | None = None,
        min_score: float | None = None,
        **options: Unpack[ListOptions],
    ) -> Ranking:
        """Put candidates in order, best first; the best `top_k` of them, or all.

        Candidates are pages by id or reference, texts, or `Document`s, in any order: a list, or a dict of
        scores by page. Either all come with scores, or the retriever of the calibration, or BM25 over their
        texts, supplies them. A page given twice counts once, at its higher score. What cannot be scored
        stands after the others. `ListOptions` has the options.
        Pages whose relevance score is below `min_score` are left out, all of them if need be.
        """
        _require_count(top_k, "top_k")
        require_min_score(min_score, self.calibration)
        prepared = self.prepare(query, candidates, **options)
        return self.rank_lists([prepared], top_k=top_k, min_score=min_score)[0]

    def prepare(self, query: str, candidates: Candidates, **options: Unpack[ListOptions]) -> CandidateList:
        """What `rank` does before the model runs: find the pages, score them, encode those missing."""
        text = validate_query(query)
        given = options.get("weight")
        if given is not None and not (isinstance(given, SupportsFloat) and 0.0 <= float(given) <= 1.0):
            raise ScoreError(f"weight is {given!r}, expected a number from 0 (retriever) to 1 (readout)")
        start = time.perf_counter()
        documents = to_documents(candidates)
        matched = match_documents(documents, self.store, self.backbone, options)
        scores, scored = collect_scores(documents, matched, self.store, options.get("within"))
        notes, source = matched.notes, options.get("retriever")
        by_order = not scored and options.get("order") is not None
        alone = given == 1.0 and not scored and not by_order
        if alone:
            scores = dict.fromkeys(scores, 0.0)
            notes.append("no retriever scores: the readout alone ranks")
        elif not scored and not by_order and scores:
            scores, source = self._score_list(text, list(scores), matched.unstored)
        calibrated, doubt = self._weigh(source)
        weight = calibrated if given is None else float(given)
        notes += [doubt] * bool(doubt and given is None and not alone and len(scores) > 1)
        unread, late = "", list(scores)
        encoded: dict[str, PackedPrefix] = {}
        if weight < 1 and len(scores) > 1 and len(set(scores.values())) == 1:
            why = "the scores are" if scored else "no word of the query tells the documents apart, scores are"
            unread = f"{why} all equal: the documents are in the order sent"
        else:
            best_first = sort_candidates(scores)
            missing = [matched.unstored[page_id] for page_id in best_first if page_id in matched.unstored]
            encoded, late = self._encode_best(missing, options, start)
            if late:
                notes.append(f"{len(late)} documents were not read, for want of time: they stand last")
        read = [page_id for page_id in sort_candidates(scores) if page_id not in late]
        return CandidateList(
            query=text,
            page_ids=read,
            scores=np.array([scores[page_id] for page_id in read], dtype=np.float64),
            weight=weight,
            scored=not alone,
            calibrated=not doubt and not by_order,
            unstored=encoded,
            names=matched.names,
            sent=matched.page_ids,
            tail=matched.tail({page_id: scores[page_id] for page_id in late}, self.store),
            notes=notes,
            unread=unread,
            retrieval_ms=1000 * (time.perf_counter() - start),
        )

    def _encode_best(
        self, pages: Sequence[Page], options: ListOptions, start: float
    ) -> tuple[dict[str, PackedPrefix], list[str]]:
        """Pages encoded, and the ids of those that the options leave no time for; best first."""
        seconds, most = options.get("seconds"), options.get("max_encoded")
        encoded: dict[str, PackedPrefix] = {}
        for page in pages[:most]:
            if seconds is not None and time.perf_counter() - start > seconds:
                break
            if check := options.get("before_encoding"):
                check()
            encoded[page.page_id] = self._unstored.encode(page)
        return encoded, [page.page_id for page in pages[len(encoded) :]]

    def _score_list(
        self, query: str, page_ids: Sequence[str], unstored: Mapping[str, Page]
    ) -> tuple[dict[str, float], str]:
        """Scores of a list that comes without any, by page id and on one scale, and whose they are.

        Stored pages alone are scored by the retriever. With other documents among them it is BM25 over all
        texts; if some have none, stored pages and texts are standardized apart, and a group of one is 0.
        """
        pages = sorted(page_ids)  # the last digits of a sum depend on the order
        stored = [page_id for page_id in pages if page_id not in unstored]
        retriever = self._find_retriever() if stored else None
        if retriever is not None and len(stored) == len(pages):
            own = dict(zip(pages, retriever.score(query, pages).tolist(), strict=True))
            return {page_id: own[page_id] for page_id in page_ids}, retriever.identity or retriever.name
        texts = {page.page_id: page.text for page in self.store.pages(stored)} if stored else {}
        texts |= {page_id: unstored[page_id].text for page_id in pages if page_id in unstored}
        whole = all(text.strip() for text in texts.values())
        with_text = [page_id for page_id in pages if page_id in unstored and texts[page_id].strip()]
        scores = dict.fromkeys(page_ids, 0.0)
        for group in [pages] if whole else [stored, with_text]:
            if len(group) > 1:
                if group is stored and retriever is not None:
                    values = retriever.score(query, group)
                else:
                    values = score_texts(query, [texts[each] for each in group], self._store_words)
                values = values if whole else standardize(values, Ragged.of_lengths([len(group)]))
                scores |= dict(zip(group, values.tolist(), strict=True))
        return scores, "bm25" if whole else "several, each on its own scale"

    def _find_retriever(self) -> Retriever | None:
        """The retriever, None if it cannot be loaded; that is tried once."""
        try:
            return None if self._missing else self.retriever
        except (RetrieverError, BackboneError, ExtraMissing) as error:
            self._missing = True
            log.warning("%s: lists without scores are scored by BM25: %s", self.store.uri, error)
            return None

    @cached_property
    def _store_words(self) -> BM25 | None:
        """How many of the store's pages hold a word; None if they have no text."""
        try:
            return self._retriever if isinstance(self._retriever, BM25) else BM25(self.store)
        except RetrieverError:
            return None

    def _weigh(self, source: str | None) -> tuple[float, str]:
        """The weight for the scores of a retriever, and why it is not the calibrated one.

        A weight of 0 says that the model does not help here, whose scores it may be fused with.
        """
        calibration = self.calibration
        own = (calibration.retriever, calibration.retriever_identity, calibration.retriever_source)
        weight = calibration.weight.weight
        if weight == 0 or (source or "").casefold() in {name.casefold() for name in own if name}:
            return weight, ""
        whose = "an unnamed retriever" if source is None else f"another retriever ({source})"
        return equal_weight().weight, (
            f"weight {equal_weight().weight:g}, a default: the scores are of {whose}, and the calibration is "
            f"for {calibration.retriever!r}; name that retriever if it made them, or calibrate for yours"
        )

    def rank_lists(
        self,
        lists: Sequence[CandidateList],
        *,
        top_k: int | None = None,
        min_score: float | None = None,
        before_pass: Callable[[], None] = lambda: None,
    ) -> list[Ranking]:
        """Rank each list as `rank` would; lists whose passes have the same shape share them.

        `before_pass` is called before the model runs: what it raises ends the work. Pages that cannot be read
        are left out, with a note.
        """
        states, lists = None, [self._encode_pending(candidates) for candidates in lists]
        while states is None:
            lists = [drop_unreadable(candidates, self.store) for candidates in lists]
            with suppress(UnreadablePages):
                states = run_lists(lists, self._shallow, self.calibration.state, before_pass=before_pass)
        rankings = (
            rank_states(candidates, list_states, self.calibration, self.store)
            for candidates, list_states in zip(lists, states, strict=True)
        )
        kept = (drop_low_scores(ranking, min_score) for ranking in rankings)
        return [replace(ranking, pages=ranking.pages[:top_k]) for ranking in kept]

    def search(self, query: str, **options: Unpack[SearchOptions]) -> Ranking:
        """Let the retriever find candidates, rerank them, return the best; `SearchOptions` has how many."""
        return self.search_many([query], **options)[0]

    def search_many(self, queries: Sequence[str], **options: Unpack[SearchOptions]) -> list[Ranking]:
        """`search` for each query; the retriever sees them together."""
        k, top_k, min_score = options.get("k", CANDIDATES), options.get("top_k", 5), options.get("min_score")
        _require_count(k, "k")
        _require_count(top_k, "top_k")
        require_min_score(min_score, self.calibration)
        lists = self.retrieve(queries, k=k, within=options.get("within")) if queries else []
        return [self.rank_lists([candidates], top_k=top_k, min_score=min_score)[0] for candidates in lists]

    def retrieve(
        self, queries: Sequence[str], *, k: int = CANDIDATES, within: PageFilter | None = None
    ) -> list[CandidateList]:
        """What `search` does before the model runs; the retriever sees the queries together."""
        texts = [validate_query(query) for query in queries]
        start = time.perf_counter()
        if within:
            retrieved = self.retriever.search_within(texts, k, self.store.select(within))
        else:
            retrieved = self.retriever.search_many(texts, k)
        retrieval_ms = 1000 * (time.perf_counter() - start) / len(texts)
        weight, doubt = self._weigh(self.retriever.identity or self.retriever.name)
        return [
            CandidateList(
                query=text,
                page_ids=[candidate.page_id for candidate in candidates],
                scores=np.array([candidate.score for candidate in candidates], dtype=np.float64),
                weight=weight,
                calibrated=not doubt,
                notes=[doubt] * bool(doubt),
                retrieval_ms=retrieval_ms,
            )
            for text, candidates in zip(texts, retrieved, strict=True)
        ]

    def _encode_pending(self, candidates: CandidateList) -> CandidateList:
        """Encode in memory what the store has without a prefix, as it is still being written."""
        stored = [page_id for page_id in candidates.page_ids if page_id not in candidates.unstored]
        pending = {} if candidates.unread else self._unstored.encode_pending(self.store, stored)
        if not pending:
            return candidates
        note = f"{len(pending)} candidates were encoded just now: indexing has not come to them"
        return replace(candidates, unstored=candidates.unstored | pending, notes=[*candidates.notes, note])

    def explain(self, query: str, page: str, *, layer: int | None = None) -> Explanation:
        """Where the query's last state looked on a stored page, named by id or reference.

        The attention is averaged over heads and over the stored layers, or taken at one `layer` of them.
        """
        return explain(self._shallow, validate_query(query), self.store.find(page), self._reader, layer=layer)

    def cache_counts(self) -> CacheCounts:
        """Hits, misses and size of the cache of pages."""
        return self._shallow.cache_counts()

    def close(self) -> None:
        """Close the store; the model stays open."""
        self._reader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _require_count(count: int | None, name: str) -> None:
    if count is not None and (not isinstance(count, int) or count < 1):
        raise ScoreError(f"{name} is {count!r}, expected a whole number of at least 1")
