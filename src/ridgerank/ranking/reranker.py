"""What users import: a store, a calibration and a retriever joined, queries in, rankings out.

    with Reranker.open("pages") as reranker:
        for page in reranker.search("operating margin in 2019").pages:
            print(page.rank, page.reference, page.reason)

A request: candidates with the retriever's scores, states over their stored prefixes (`shallow.py`), one
product with the readout, eq. 2 at the calibrated weight. Safe for any number of threads.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from threading import Lock
from types import TracebackType
from typing import Self

import numpy as np
import torch

from ridgerank.backbones.base import Backbone
from ridgerank.backbones.load import load_backbone
from ridgerank.calibration.artifact import DEFAULT_NAME, Calibration
from ridgerank.errors import LineageMismatch, ScoreError, StoreError
from ridgerank.fusion.standardize import fused_parts
from ridgerank.ragged import Floats, Ragged
from ridgerank.ranking.batching import Passes, States
from ridgerank.ranking.candidates import CandidateLike, Prepared, names_and_scores
from ridgerank.ranking.explain import explain
from ridgerank.ranking.shallow import ShallowPass
from ridgerank.ranking.unstored import Origin, UnstoredPage, UnstoredPages
from ridgerank.records import Explanation, Latency, RankedPage, Ranking
from ridgerank.retrievers.base import Retriever
from ridgerank.retrievers.load import load_retriever
from ridgerank.runs.queries import validate_query
from ridgerank.store.cache import CacheCounts
from ridgerank.store.disk_cache import DiskCache
from ridgerank.store.lance_dataset import named
from ridgerank.store.model_lineage import reading_of
from ridgerank.store.page_store import PageStore
from ridgerank.store.sidecar import reading_calibrations

CANDIDATES = 20
"""K, as in the paper."""
CACHE_BYTES = 1 << 30


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
        guest_bytes: int = CACHE_BYTES,
    ) -> None:
        """Join parts that were made for each other; `open` finds them by name."""
        self.store = shallow.store
        self.backbone = shallow.backbone
        self.calibration = calibration
        calibration.readout.lineage.require(self.store.lineage, artifact="the calibration")
        self._shallow = shallow
        self._passes = Passes(shallow, calibration.state)
        self._retriever = retriever
        self._loading = Lock()
        self._guests = UnstoredPages(shallow.backbone, self.store.lineage, capacity_bytes=guest_bytes)
        if retriever is not None:
            self._require_own(retriever)

    @classmethod
    def open(
        cls,
        store: str,
        *,
        readout: str = DEFAULT_NAME,
        backbone: Backbone | str | None = None,
        retriever: Retriever | str | None = None,
        cache_bytes: int = CACHE_BYTES,
        disk: DiskCache | None = None,
        device: str | None = None,
        dtype: torch.dtype | None = None,
    ) -> Self:
        """Open a calibrated store: its own model and retriever unless others are given.

        `readout` names one of the calibrations beside the store. The retriever is loaded when it is first
        needed: candidates that come with scores do not need one. `cache_bytes` of prefixes stay in memory;
        with `disk`, more of them stay on a local disk, for a store that lies far away.
        """
        opened = PageStore.open(store, disk=disk)
        try:
            with reading_calibrations(store) as folder:
                calibration = Calibration.load(folder, readout, lineage=opened.lineage)
            if not isinstance(backbone, Backbone):
                name = backbone or opened.lineage.backbone
                backbone = load_backbone(name, device=device, dtype=dtype, **reading_of(opened.lineage))
            if isinstance(retriever, str):
                retriever = load_retriever(retriever, opened, device=device, dtype=dtype)
            shallow = ShallowPass(backbone, opened, cache_bytes=cache_bytes)
            return cls(shallow, calibration, retriever=retriever, guest_bytes=cache_bytes)
        except BaseException:
            opened.close()
            raise

    @property
    def retriever(self) -> Retriever:
        """The retriever the weight was estimated for."""
        with self._loading:
            if self._retriever is None:
                found = load_retriever(self.calibration.retriever_source, self.store)
                self._require_own(found)
                self._retriever = found
            return self._retriever

    def rank(
        self,
        query: str,
        candidates: Sequence[CandidateLike],
        *,
        top_k: int | None = None,
        encode_missing: Origin | None = None,
        weight: float | None = None,
    ) -> Ranking:
        """Put candidates in order, best first; the best `top_k` of them, or all.

        Candidates name pages by id or reference, in any order. Either all come with scores, or none, and the
        calibration's retriever then supplies them. A page given twice counts once, at its higher score. A
        page the store lacks is an error, unless `encode_missing` has it: images by name, or files to look in.
        A `weight` given stands in for the calibrated one; at 1, the readout alone, no retriever is asked.
        """
        _require_count(top_k, "top_k")
        prepared = self.prepare(query, candidates, encode_missing=encode_missing, weight=weight)
        return self.rank_prepared([prepared], top_k=top_k)[0]

    def prepare(
        self,
        query: str,
        candidates: Sequence[CandidateLike],
        *,
        encode_missing: Origin | None = None,
        weight: float | None = None,
    ) -> Prepared:
        """What `rank` does before the model runs: find the pages, encode those missing, score them."""
        text = validate_query(query)
        if weight is not None and not 0.0 <= weight <= 1.0:
            raise ScoreError(f"a weight of {weight}, wanted a number from 0 (retriever) to 1 (readout)")
        return self._wanted(text, candidates, encode_missing, weight)

    def rank_prepared(self, prepared: Sequence[Prepared], *, top_k: int | None = None) -> list[Ranking]:
        """Rank each list as `rank` would; lists whose passes have the same shape share them."""
        states = self._passes.run(prepared)
        return [self._ranked(one, found, top_k=top_k) for one, found in zip(prepared, states, strict=True)]

    def search(self, query: str, *, k: int = CANDIDATES, top_k: int = 5) -> Ranking:
        """Let the retriever find `k` candidates, rerank them, return the best `top_k`."""
        return self.search_many([query], k=k, top_k=top_k)[0]

    def rank_many(
        self,
        queries: Sequence[str],
        candidates: Sequence[Sequence[CandidateLike]],
        *,
        top_k: int | None = None,
        encode_missing: Origin | None = None,
    ) -> list[Ranking]:
        """`rank` for each query with its candidates."""
        if len(queries) != len(candidates):
            raise ScoreError(
                f"{len(queries)} queries with {len(candidates)} candidate lists; wanted one each"
            )
        return [
            self.rank(query, own, top_k=top_k, encode_missing=encode_missing)
            for query, own in zip(queries, candidates, strict=True)
        ]

    def search_many(self, queries: Sequence[str], *, k: int = CANDIDATES, top_k: int = 5) -> list[Ranking]:
        """`search` for each query; the retriever sees them together."""
        texts = [validate_query(query) for query in queries]
        _require_count(k, "k")
        _require_count(top_k, "top_k")
        if not texts:
            return []
        return [self.rank_prepared([one], top_k=top_k)[0] for one in self.retrieve(texts, k=k)]

    def retrieve(self, queries: Sequence[str], *, k: int = CANDIDATES) -> list[Prepared]:
        """What `search` does before the model runs; the retriever sees the queries together."""
        texts = [validate_query(query) for query in queries]
        start = time.perf_counter()
        found = self.retriever.search_many(texts, k)
        retrieval_ms = 1000 * (time.perf_counter() - start) / len(texts)
        return [
            replace(self._wanted(text, own, None, None), retrieval_ms=retrieval_ms)
            for text, own in zip(texts, found, strict=True)
        ]

    def explain(self, query: str, page: str, *, layer: int | None = None) -> Explanation:
        """Where the query's last state looked on a stored page, named by id or reference.

        The attention is averaged over heads and over the stored layers, or taken at one `layer` of them.
        """
        return explain(self._shallow, validate_query(query), self.store.find(page), layer=layer)

    async def arank(
        self,
        query: str,
        candidates: Sequence[CandidateLike],
        *,
        top_k: int | None = None,
        encode_missing: Origin | None = None,
    ) -> Ranking:
        """`rank` in a thread of its own, so that the event loop goes on."""
        return await asyncio.to_thread(
            self.rank, query, candidates, top_k=top_k, encode_missing=encode_missing
        )

    async def asearch(self, query: str, *, k: int = CANDIDATES, top_k: int = 5) -> Ranking:
        """`search` in a thread of its own, so that the event loop goes on."""
        return await asyncio.to_thread(self.search, query, k=k, top_k=top_k)

    def cache_counts(self) -> CacheCounts:
        """How the cache of pages has fared."""
        return self._shallow.cache_counts()

    def close(self) -> None:
        """Close the store; the model stays with whoever gave it."""
        self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ranked(self, asked: Prepared, found: States | None, *, top_k: int | None) -> Ranking:
        if found is None:
            latency = Latency(asked.retrieval_ms, 0.0, 0.0, 0.0)
            note = "; ".join([*asked.notes, "no candidates"])
            return Ranking(asked.query, (), asked.weight, latency, note=note)
        start = time.perf_counter()
        scores = self.calibration.readout.score(found.states)
        pages = self._placed(asked, scores)[:top_k]
        notes = [*asked.notes, *asked.flat(scores)]
        ranking_ms = 1000 * (time.perf_counter() - start)
        latency = Latency(asked.retrieval_ms, found.reading_ms, found.compute_ms, ranking_ms)
        return Ranking(asked.query, tuple(pages), asked.weight, latency, note="; ".join(notes))

    def _placed(self, wanted: Prepared, scores: Floats) -> list[RankedPage]:
        lists = Ragged.of_lengths([len(scores)])
        retriever_ranks = lists.ranks(wanted.scores)
        own, other = fused_parts(wanted.scores, scores, wanted.weight, lists)
        fused = own + other
        columns = zip(
            wanted.page_ids,
            fused.tolist(),
            wanted.scores.tolist(),
            scores.tolist(),
            own.tolist(),
            other.tolist(),
            retriever_ranks.tolist(),
            strict=True,
        )
        rows = list(columns)
        order = np.lexsort((retriever_ranks, -fused)).tolist()  # a tie goes to the retriever's order
        references = self._references(wanted)
        return [
            RankedPage(
                page_id=page_id,
                reference=references[page_id],
                fused_score=fused_score,
                retriever_score=retriever_score,
                readout_score=readout_score,
                retriever_part=retriever_part,
                readout_part=readout_part,
                rank=rank,
                retriever_rank=retriever_rank,
            )
            for rank, (
                page_id,
                fused_score,
                retriever_score,
                readout_score,
                retriever_part,
                readout_part,
                retriever_rank,
            ) in enumerate((rows[place] for place in order), start=1)
        ]

    def _references(self, wanted: Prepared) -> dict[str, str]:
        """What each candidate is called, by page id."""
        stored = [page_id for page_id in wanted.page_ids if page_id not in wanted.guests]
        names = dict(zip(stored, self.store.references(stored), strict=True))
        return names | {page_id: guest.reference for page_id, guest in wanted.guests.items()}

    def _wanted(
        self,
        query: str,
        candidates: Sequence[CandidateLike],
        encode_missing: Origin | None,
        weight: float | None,
    ) -> Prepared:
        start = time.perf_counter()
        names, given = names_and_scores(candidates)
        page_of, guests = self._resolved(names, encode_missing)
        page_ids = [page_of[name] for name in names]
        notes = []
        if given is None:
            page_ids, repeated = list(dict.fromkeys(page_ids)), len(page_ids) - len(set(page_ids))
            if weight == 1.0:
                scores = np.zeros(len(page_ids))
                notes.append("no retriever scores: the readout alone ranks")
            else:
                scores = self._retriever_scores(query, page_ids, guests)
        else:
            best: dict[str, float] = {}
            for page_id, score in zip(page_ids, given, strict=True):
                best[page_id] = max(score, best.get(page_id, score))
            repeated = len(page_ids) - len(best)
            page_ids, scores = list(best), np.array(list(best.values()), dtype=np.float64)
        if repeated:
            notes.append(f"{repeated} repeated candidates count once, at their highest score")
        # One order, whatever order was given: the last digits of a sum depend on it.
        order = sorted(range(len(page_ids)), key=lambda place: (-scores[place], page_ids[place]))
        return Prepared(
            query=query,
            page_ids=[page_ids[place] for place in order],
            scores=scores[order],
            guests=guests,
            weight=self.calibration.weight.weight if weight is None else weight,
            scored=given is not None or weight != 1.0,
            notes=notes,
            retrieval_ms=1000 * (time.perf_counter() - start),
        )

    def _resolved(
        self, names: Sequence[str], encode_missing: Origin | None
    ) -> tuple[dict[str, str], dict[str, UnstoredPage]]:
        """Name → page id for every candidate, and the pages among them that are in no store."""
        page_of = self.store.lookup_many(names)
        missing = [name for name in dict.fromkeys(names) if name not in page_of]
        guests: dict[str, UnstoredPage] = {}
        if missing and encode_missing is not None:
            for name, guest in self._guests.find(missing, encode_missing).items():
                page_of[name] = guest.page_id
                if guest.page_id not in self.store:
                    guests[guest.page_id] = guest
        unknown = [name for name in missing if name not in page_of]
        if unknown:
            tried = "" if encode_missing is None else ", nor where missing pages were to be found"
            raise StoreError(
                f"pages not in the page store at {self.store.uri}{tried}: {named(unknown)}; index them, "
                "leave them out, or have them encoded on the fly (encode_missing)"
            )
        return page_of, guests

    def _retriever_scores(self, query: str, page_ids: list[str], guests: dict[str, UnstoredPage]) -> Floats:
        if not page_ids:
            return np.zeros(0)
        if guests:
            names = named([guest.reference for guest in guests.values()])
            raise ScoreError(f"the retriever does not know {names}, which are in no store; give their scores")
        return self.retriever.score(query, page_ids)

    def _require_own(self, retriever: Retriever) -> None:
        if retriever.name != self.calibration.retriever:
            raise LineageMismatch(
                f"the calibration weighs the scores of {self.calibration.retriever!r}, not of "
                f"{retriever.name!r}; use that retriever, or calibrate for this one under another name"
            )


def _require_count(count: int | None, name: str) -> None:
    if count is not None and count < 1:
        raise ScoreError(f"{name} is {count}, wanted at least 1")
