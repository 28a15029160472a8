"""What users import: a store, a calibration and a retriever joined, queries in, rankings out.

    with Reranker.open("pages") as reranker:
        for page in reranker.search("operating margin in 2019").pages:
            print(page.rank, page.reference, page.reason)

A request: candidates with the retriever's scores, states over their stored prefixes, one product with the
readout, eq. 2 at the calibrated weight (`candidates.py`). Safe for any number of threads.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial, wraps
from pathlib import Path
from threading import Lock
from typing import Any, Concatenate, ParamSpec, Self, SupportsFloat

import numpy as np
import torch

from ridgerank.backbones.base import Backbone
from ridgerank.backbones.model_settings import ModelSettings
from ridgerank.calibration.artifact import DEFAULT_NAME, Calibration
from ridgerank.errors import LineageMismatch, ScoreError, StoreError, UnreadablePages
from ridgerank.processes import IsolatedProcess
from ridgerank.records import Explanation, Ranking, validate_query
from ridgerank.reranker.candidates import (
    CandidateList,
    Candidates,
    PageSource,
    UnstoredPage,
    UnstoredPages,
    drop_low_scores,
    drop_unreadable,
    keep_best_scores,
    note_pending,
    rank_states,
    require_min_score,
    resolve_names,
    run_lists,
    separate_scores,
    sort_candidates,
)
from ridgerank.reranker.explain import explain
from ridgerank.reranker.options import CalibratedStore, open_calibrated
from ridgerank.retrievers.base import Retriever
from ridgerank.retrievers.load import load_retriever
from ridgerank.scoring.shallow import ShallowPass
from ridgerank.store.lance_dataset import shorten
from ridgerank.store.page_filter import PageFilter
from ridgerank.store.page_store import CACHE_BYTES, CacheCounts

CANDIDATES = 20
"""K, as in the paper."""
Options = ParamSpec("Options")

UNSTORED_BYTES = 128 << 20
"""Pages that are in no store and stay in memory for a while: few of them are sent again."""


def _in_a_thread(
    method: Callable[Concatenate["Reranker", Options], Ranking],
) -> Callable[Concatenate["Reranker", Options], Coroutine[Any, Any, Ranking]]:
    """The method in a thread of its own, so that the event loop goes on."""

    @wraps(method)
    async def call(self: "Reranker", /, *args: Options.args, **options: Options.kwargs) -> Ranking:
        return await asyncio.to_thread(method, self, *args, **options)

    return call


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
        self._load_retriever = partial(load_retriever, store=self.store, device=device, dtype=dtype)
        self._loading = Lock()
        self._reader = IsolatedProcess()  # started when a document is first read
        self._closed = False
        self._unstored = UnstoredPages(
            shallow.backbone, self.store.lineage, capacity_bytes=UNSTORED_BYTES, basis=self.store.basis
        )
        if retriever is not None:
            self._require_calibrated_for(retriever)

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
        dtype: torch.dtype | None = None,
    ) -> Self:
        """Open a calibrated store: its own model and retriever unless others are given.

        `readout` names one of the calibrations beside the store. The retriever is loaded when it is first
        needed: candidates that come with scores do not need one. `cache_bytes` of prefixes stay in memory.
        """
        opened, calibration = store if isinstance(store, tuple) else open_calibrated(store, readout)
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
        """The retriever the weight was estimated for; loaded once, also if it proves to be another."""
        with self._loading:
            if self._retriever is None:
                self._retriever = self._load_retriever(self.calibration.retriever_source)
            self._require_calibrated_for(self._retriever)
            return self._retriever

    def rank(
        self,
        query: str,
        candidates: Candidates,
        *,
        top_k: int | None = None,
        encode_missing: PageSource | None = None,
        weight: float | None = None,
        min_score: float | None = None,
        within: PageFilter | None = None,
    ) -> Ranking:
        """Put candidates in order, best first; the best `top_k` of them, or all.

        Candidates name pages by id or reference, in any order: a list, or a dict of scores by page. Either
        all come with scores, or none, and the calibration's retriever then supplies them. A page given twice
        counts once, at its higher score. A page the store lacks is an error, unless `encode_missing` has it:
        images by name, or files to look in.
        A `weight` given stands in for the calibrated one; at 1, the readout alone, no retriever is asked.
        Pages whose relevance score is below `min_score` are left out, all of them if need be; so are stored
        pages that are not `within` a filter.
        """
        _require_count(top_k, "top_k")
        require_min_score(min_score, self.calibration)
        prepared = self.prepare(
            query, candidates, encode_missing=encode_missing, weight=weight, within=within
        )
        return self.rank_lists([prepared], top_k=top_k, min_score=min_score)[0]

    def prepare(
        self,
        query: str,
        candidates: Candidates,
        *,
        encode_missing: PageSource | None = None,
        weight: float | None = None,
        within: PageFilter | None = None,
    ) -> CandidateList:
        """What `rank` does before the model runs: find the pages, encode those missing, score them."""
        self._require_open()
        text = validate_query(query)
        if weight is not None and not (isinstance(weight, SupportsFloat) and 0.0 <= float(weight) <= 1.0):
            raise ScoreError(f"weight is {weight!r}, expected a number from 0 (retriever) to 1 (readout)")
        start = time.perf_counter()
        names, scores = separate_scores(candidates)
        all_ids, unstored = resolve_names(names, self.store, self._unstored, encode_missing)
        notes = []
        if within:
            selected = self.store.select(within).page_ids | unstored.keys()
            rows = [row for row, page_id in enumerate(all_ids) if page_id in selected]
            if left_out := len(all_ids) - len(rows):
                notes.append(f"{left_out} candidates left out: not of {within}")
            all_ids = [all_ids[row] for row in rows]
            scores = None if scores is None else [scores[row] for row in rows]
        if scores is not None:
            page_ids, retriever_scores = keep_best_scores(all_ids, scores)
        else:
            page_ids = list(dict.fromkeys(all_ids))
            if weight == 1.0:
                retriever_scores = np.zeros(len(page_ids))
                notes.append("no retriever scores: the readout alone ranks")
            elif unstored:
                shown = shorten([page.reference for page in unstored.values()])
                raise ScoreError(f"the retriever does not know {shown}: not stored; give scores for them")
            else:
                retriever_scores = self.retriever.score(text, page_ids) if page_ids else np.zeros(0)
        if repeated := len(all_ids) - len(page_ids):
            notes.append(f"{repeated} repeated candidates count once, at their highest score")
        page_ids, retriever_scores = sort_candidates(page_ids, retriever_scores)
        pending = self._encode_pending([page_id for page_id in page_ids if page_id not in unstored])
        return CandidateList(
            query=text,
            page_ids=page_ids,
            scores=retriever_scores,
            weight=self.calibration.weight.weight if weight is None else weight,
            scored=scores is not None or weight != 1.0,
            unstored=unstored | pending,
            notes=notes + note_pending(pending),
            retrieval_ms=1000 * (time.perf_counter() - start),
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
        states = None
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

    def search(
        self,
        query: str,
        *,
        k: int = CANDIDATES,
        top_k: int = 5,
        min_score: float | None = None,
        within: PageFilter | None = None,
    ) -> Ranking:
        """Let the retriever find `k` candidates, rerank them, return the best `top_k`.

        Pages whose relevance score is below `min_score` are left out, all of them if need be.
        With a filter, only pages `within` it are searched.
        """
        return self.search_many([query], k=k, top_k=top_k, min_score=min_score, within=within)[0]

    def search_many(
        self,
        queries: Sequence[str],
        *,
        k: int = CANDIDATES,
        top_k: int = 5,
        min_score: float | None = None,
        within: PageFilter | None = None,
    ) -> list[Ranking]:
        """`search` for each query; the retriever sees them together."""
        _require_count(k, "k")
        _require_count(top_k, "top_k")
        require_min_score(min_score, self.calibration)
        if not queries:
            return []
        lists = self.retrieve(queries, k=k, within=within)
        return [self.rank_lists([candidates], top_k=top_k, min_score=min_score)[0] for candidates in lists]

    def retrieve(
        self, queries: Sequence[str], *, k: int = CANDIDATES, within: PageFilter | None = None
    ) -> list[CandidateList]:
        """What `search` does before the model runs; the retriever sees the queries together."""
        self._require_open()
        texts = [validate_query(query) for query in queries]
        start = time.perf_counter()
        if within:
            retrieved = self.retriever.search_within(texts, k, self.store.select(within))
        else:
            retrieved = self.retriever.search_many(texts, k)
        retrieval_ms = 1000 * (time.perf_counter() - start) / len(texts)
        pending = self._encode_pending([each.page_id for candidates in retrieved for each in candidates])
        lists = []
        for text, candidates in zip(texts, retrieved, strict=True):
            page_ids = [candidate.page_id for candidate in candidates]
            unstored = {page_id: pending[page_id] for page_id in page_ids if page_id in pending}
            lists.append(
                CandidateList(
                    query=text,
                    page_ids=page_ids,
                    scores=np.array([candidate.score for candidate in candidates], dtype=np.float64),
                    weight=self.calibration.weight.weight,
                    unstored=unstored,
                    notes=note_pending(unstored),
                    retrieval_ms=retrieval_ms,
                )
            )
        return lists

    def _encode_pending(self, page_ids: Sequence[str]) -> dict[str, UnstoredPage]:
        """Candidates that the store has without a prefix, as it is still being written; encoded in memory."""
        return self._unstored.encode_pending(self.store, list(dict.fromkeys(page_ids)))

    def explain(self, query: str, page: str, *, layer: int | None = None) -> Explanation:
        """Where the query's last state looked on a stored page, named by id or reference.

        The attention is averaged over heads and over the stored layers, or taken at one `layer` of them.
        """
        self._require_open()
        return explain(self._shallow, validate_query(query), self.store.find(page), self._reader, layer=layer)

    arank = _in_a_thread(rank)
    asearch = _in_a_thread(search)

    def cache_counts(self) -> CacheCounts:
        """Hits, misses and size of the cache of pages."""
        return self._shallow.cache_counts()

    def close(self) -> None:
        """Close the store; the model stays open."""
        self._closed = True
        self._reader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _require_open(self) -> None:
        if self._closed:
            raise StoreError(f"the reranker of {self.store.uri} is closed; open it again")

    def _require_calibrated_for(self, retriever: Retriever) -> None:
        if (retriever.identity or retriever.name) != self.calibration.retriever_identity:
            another = "another " if retriever.name == self.calibration.retriever else ""
            raise LineageMismatch(
                f"the calibration weighs the scores of {self.calibration.retriever!r}, not of {another}"
                f"{retriever.name!r}; use that retriever, or calibrate for this one under another name"
            )


def _require_count(count: int | None, name: str) -> None:
    if count is not None and (not isinstance(count, int) or count < 1):
        raise ScoreError(f"{name} is {count!r}, expected a whole number of at least 1")
