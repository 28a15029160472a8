"""Judgements given in the browser: kept beside the store, and what they make of the weight."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from ridgerank.calibration.artifact import Calibration
from ridgerank.calibration.queries import cut_questions
from ridgerank.calibration.weight import Grades, reweigh
from ridgerank.fusion.standardize import standardize
from ridgerank.fusion.weight import WeightEstimate
from ridgerank.ragged import Ragged
from ridgerank.records import Ranking, ScoredPages
from ridgerank.reranker.reranker import Reranker
from ridgerank.serving.http_errors import ApiError
from ridgerank.serving.schemas import JudgementsResponse
from ridgerank.store.judgements import Judgement, Judgements, merge_grades
from ridgerank.store.lance_dataset import local_root

PROPOSED_QUERIES = 3
MAX_BYTES = 64 << 20
"""Of the record of judgements, which is only ever appended to."""
MAX_PAGES = 200
"""Judged pages in one answer."""
_EXAMPLE_PAGES = 40
_EXAMPLE_CHARACTERS = 120


class Judging:
    """Keeps judgements of one store and says what they are worth."""

    def __init__(self, reranker: Reranker) -> None:
        """Refuse at once if nothing can be kept beside the store."""
        self._store = reranker.store
        self._calibration = reranker.calibration
        self._judgements = Judgements(reranker.store.uri)
        self._judgements.require_writable()
        self.readout_id = readout_id(reranker.calibration)
        self._read: tuple[object, _Kept] | None = None

    def knows(self, query: str) -> bool:
        """Whether the candidates of a query are kept already."""
        return query in self._kept().known

    def keep_list(self, ranking: Ranking) -> None:
        """Keep the candidates of a query and their scores."""
        pages = ScoredPages.of_ranking(sorted(ranking.pages, key=lambda page: page.retriever_rank))
        self._judgements.add_list(ranking.query, self.readout_id, pages)

    def keep(self, query: str, page_id: str, grade: int | None, judge: str) -> None:
        """Keep a judgement, or take one back."""
        judgement = Judgement(query, page_id, self._store.reference(page_id), grade, judge)
        try:
            if self._judgements.size() > MAX_BYTES:
                full = f"the record of judgements has {MAX_BYTES >> 20} MB, its most; calibrate with them"
                raise ApiError(409, "read_only", f"{full}, then move it away")
            self._judgements.add(judgement)
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise ApiError(409, "read_only", f"the judgement could not be kept: {reason}") from error

    def report(self, query: str, judge: str, *, offset: int = 0) -> JudgementsResponse:
        """All judgements at a glance, those of one query, and what to judge next."""
        kept = self._kept()
        grades, known = kept.grades.get(query, {}), kept.known
        page_ids = propose_pages(known[query], grades) if query in known else []
        shown = dict(islice(grades.items(), offset, offset + MAX_PAGES))
        weight = kept.weight
        return JudgementsResponse(
            query=query,
            own={page: kept.said[query, page, judge] for page in shown if (query, page, judge) in kept.said},
            merged=shown,
            pages=len(grades),
            judgements=len(kept.said),
            queries=len(kept.grades),
            judges=len({judge for _, _, judge in kept.said}),
            weight=weight.weight,
            weight_interval=list(weight.weight_interval),
            queries_used=weight.queries_used if weight.method == "closed-form" else 0,
            note=weight.note,
            next_pages=dict(zip(page_ids, self._store.references(page_ids), strict=True)),
            next_queries=kept.next_queries,
        )

    def _kept(self) -> "_Kept":
        """What is kept, read again only if a file has changed; called by one thread at a time."""
        stamp = self._judgements.stamp()
        if self._read is None or self._read[0] != stamp:
            self._read = (stamp, self._read_all())
        return self._read[1]

    def _read_all(self) -> "_Kept":
        judgements, lists = self._judgements.read(), self._calibration.lists
        known, grades = self._judgements.read_lists(self.readout_id), merge_grades(judgements)
        said = {(each.query, each.page_id, each.judge): each.grade or 0 for each in judgements}
        if lists is None:
            note = "nothing was calibrated on these pages: calibrate to see what judgements change"
            return _Kept(said, grades, known, replace(self._calibration.weight, note=note), [])
        weight = reweigh(self._calibration, known, grades).weight
        unjudged = [each.text for each in lists.queries if each.text not in grades]
        return _Kept(said, grades, known, weight, choose_evenly(unjudged, PROPOSED_QUERIES))


@dataclass(frozen=True, slots=True)
class _Kept:
    """What lies beside the store, and what it makes of the weight."""

    said: Mapping[tuple[str, str, str], int]
    """Query, page and judge → grade."""
    grades: Mapping[str, Mapping[str, int]]
    known: Mapping[str, ScoredPages]
    weight: WeightEstimate
    next_queries: list[str]


def kept_judgements(
    uri: str, calibration: Calibration
) -> tuple[dict[str, dict[str, int]], dict[str, ScoredPages]]:
    """Judgements beside a store, by the text of the query, and the candidates that were kept with them."""
    if local_root(uri) is None:
        return {}, {}
    judgements = Judgements(uri)
    return judgements.grades(), judgements.read_lists(readout_id(calibration))


def readout_id(calibration: Calibration) -> str:
    """A digest of the fitted vector: scores of different readouts are not mixed."""
    return hashlib.blake2b(calibration.readout.vector.tobytes(), digest_size=8).hexdigest()


def choose_evenly(texts: Sequence[str], count: int) -> list[str]:
    """At most `count` of the texts, spread over all of them."""
    step = max(1, len(texts) // count)
    return list(texts[::step][:count])


def example_queries(reranker: Reranker) -> list[str]:
    """Three queries to try: some that the calibration was made with, or made from the first pages' text."""
    lists = reranker.calibration.lists
    if lists is not None:
        short = [query.text for query in lists.queries if len(query.text) <= _EXAMPLE_CHARACTERS]
        return choose_evenly(short or [query.text for query in lists.queries], PROPOSED_QUERIES)
    pages = reranker.store.pages(reranker.store.page_ids()[:_EXAMPLE_PAGES])
    questions = cut_questions({page.page_id: page.text for page in pages}, PROPOSED_QUERIES)
    return [question.text for question in questions]


def propose_pages(pages: ScoredPages, judged: Grades, *, pool: int = 5) -> list[str]:
    """Pages to judge next: of both orders' first ones those not judged, the most disputed first.

    Only a page that the two scores place differently tells which of them to believe.
    """
    lists = Ragged.of_lengths([len(pages.page_ids)])
    b, s = np.array(pages.retriever), np.array(pages.readout)
    distances = np.abs(standardize(b, lists) - standardize(s, lists))
    pooled = np.flatnonzero(np.minimum(lists.ranks(b), lists.ranks(s)) <= pool)
    order = sorted(pooled.tolist(), key=lambda member: -distances[member])
    return [page for page in (pages.page_ids[member] for member in order) if page not in judged]
