"""A candidate list from the pages that users name to its ranking.

Names become a list of known pages with scores, the model's states over their prefixes are computed (lists of
one shape share a pass, long lists are cut into several), and both scores are fused and sorted (eq. 1 and 2).
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import SupportsFloat, TypeAlias

import numpy as np
import torch
from PIL.Image import Image
from scipy.special import expit

from ridgerank.backbones.base import Backbone
from ridgerank.calibration.artifact import Calibration
from ridgerank.documents.render import PageRef, list_pages, page_from_image, page_from_text, render_pages
from ridgerank.errors import DocumentError, ScoreError, StoreError
from ridgerank.fusion.standardize import standardize
from ridgerank.fusion.weight import WeightEstimate
from ridgerank.lineage import Lineage
from ridgerank.ragged import Floats, Ragged, finite_scores
from ridgerank.records import Candidate, Latency, Page, RankedPage, Ranking, State
from ridgerank.scoring.shallow import ShallowPass, ShallowStates
from ridgerank.store.codec import compress
from ridgerank.store.lance_dataset import shorten
from ridgerank.store.layout import Basis, PackedPrefix
from ridgerank.store.page_store import ByteLRU, PageStore
from ridgerank.store.sidecar import locate_pages, render_locations

CandidateLike: TypeAlias = Candidate | tuple[str, float] | str
"""A page by id or reference, with the retriever's score or without."""
Candidates: TypeAlias = Sequence[CandidateLike] | Mapping[str, float]
"""What `rank` takes: a list, or scores by page."""
PageSource: TypeAlias = Mapping[str, Image | Page | str] | Iterable[str | Path]
"""Where missing pages come from: images, pages or texts by the name of the page, or files and folders."""

PAGES_PER_PASS = 64
"""More candidates than this run in several passes: memory grows with the pages of a pass."""
MIN_SHARED_PAGES = 8
"""Fewer candidates run in a pass of their own: products of few rows are summed in another order."""
PASS_ENTRIES = PAGES_PER_PASS * 256 * (256 + 1280)
"""Entries of the attention matrix of one head in one pass: those of `PAGES_PER_PASS` pages of 1,280 positions
for a query of 256 tokens. A longer query runs over fewer pages at once: its matrix grows with its square."""


@dataclass(frozen=True, slots=True, eq=False)
class UnstoredPage:
    """A page that is in no store, ready for a query."""

    page_id: str
    reference: str
    prefix: PackedPrefix


class UnstoredPages:
    """Encodes pages for a store without writing to it; safe for any number of threads."""

    def __init__(
        self, backbone: Backbone, lineage: Lineage, *, capacity_bytes: int, basis: Basis | None = None
    ) -> None:
        """`basis` is the store's, if its pages are not int8."""
        self._backbone = backbone
        self._lineage = lineage
        self._basis = basis
        self._encoded_pages: ByteLRU[str, UnstoredPage] = ByteLRU(
            capacity_bytes, count_bytes=lambda page: page.prefix.nbytes
        )
        self._listed: dict[tuple[str, ...], dict[str, PageRef]] = {}
        self._lock = Lock()

    def find(self, names: Sequence[str], source: PageSource) -> dict[str, UnstoredPage]:
        """Name → page, encoded unless it is in memory; names the source does not have are left out."""
        if not isinstance(source, Mapping):
            return self._find_in_files(names, tuple(str(path) for path in source))
        return {
            name: self._encode(self._require_text(self._as_page(source[name], name)))
            for name in names
            if name in source
        }

    def encode_pending(self, store: PageStore, page_ids: Sequence[str]) -> dict[str, UnstoredPage]:
        """Those of these pages that are stored without a prefix, from their documents; a blank one is blank.

        Pages that cannot be read any more are left out.
        """
        pending = [entry.page_id for entry in store.catalog.entries(page_ids) if not entry.nbytes]
        held = {page_id: self._encoded_pages.get(page_id) for page_id in pending}
        pages = {page_id: page for page_id, page in held.items() if page is not None}
        missing = [page_id for page_id in pending if page_id not in pages]
        locations = locate_pages(store, missing) if missing else []
        for page in render_locations(locations, max_pixels=self._backbone.page_budget):
            if isinstance(page, Page):
                pages[page.page_id] = self._encode(page)
        return pages

    def _as_page(self, content: Image | Page | str, name: str) -> Page:
        if isinstance(content, Page):
            return content
        if not isinstance(content, str):
            return page_from_image(content, name, max_pixels=self._backbone.page_budget)
        if not self._backbone.reads_text:
            raise DocumentError(
                "a document is given as a text, and the model of this store reads page images; index the "
                "document, or use a model that reads text"
            )
        return page_from_text(content, name)

    def _find_in_files(self, names: Sequence[str], paths: tuple[str, ...]) -> dict[str, UnstoredPage]:
        with self._lock:
            if paths not in self._listed:
                refs = [ref for ref in list_pages(paths, processes=1) if isinstance(ref, PageRef)]
                by_name = {ref.reference: ref for ref in refs}
                self._listed[paths] = by_name | {ref.page_id: ref for ref in refs}
            listed = self._listed[paths]
            refs_by_name = {name: listed[name] for name in names if name in listed}
        held = {name: self._encoded_pages.get(ref.page_id) for name, ref in refs_by_name.items()}
        pages = {name: page for name, page in held.items() if page is not None}
        missing = {name: ref for name, ref in refs_by_name.items() if name not in pages}
        rendered = render_pages(missing.values(), max_pixels=self._backbone.page_budget, processes=1)
        for name, page in zip(missing, rendered, strict=True):
            if not isinstance(page, Page):
                raise StoreError(f"a missing page cannot be read from its file: {page}")
            pages[name] = self._encode(self._require_text(page))
        return pages

    def _require_text(self, page: Page) -> Page:
        if self._backbone.reads_text and not page.text.strip():
            raise DocumentError(
                f"{page.reference} has no text, and the model of this store reads text; index its document "
                "with OCR"
            )
        return page

    def _encode(self, page: Page) -> UnstoredPage:
        held = self._encoded_pages.get(page.page_id)
        if held is not None:
            return held
        content = self._backbone.content(page)
        storage = self._lineage.storage
        [prefix] = self._backbone.encode([content], exit_layer=storage.exit_layer)
        packed = compress(prefix, storage.keep, self._basis)
        unstored = UnstoredPage(page.page_id, page.reference, packed)
        self._encoded_pages.put(unstored.page_id, unstored)
        return unstored


@dataclass(frozen=True, slots=True, eq=False)
class CandidateList:
    """A query and its candidates: known pages, each once, with finite scores, best first, ties by id."""

    query: str
    page_ids: list[str]
    scores: Floats
    """The retriever's, (candidates,); zeros if the readout alone ranks."""
    weight: float
    scored: bool = True
    """Whether there are retriever scores at all."""
    unstored: dict[str, UnstoredPage] = field(default_factory=dict)
    """Pages that are in no store, by page id."""
    notes: list[str] = field(default_factory=list)
    unread: str = ""
    """Why the model does not run and the retriever's order stays; empty if it runs."""
    retrieval_ms: float = 0.0

    def note_ties(self, readout_scores: Floats) -> list[str]:
        """Say where a score could not tell the candidates apart; `readout_scores` is (candidates,)."""
        if len(self.scores) == 1:
            return ["one candidate: there is nothing to rank"]
        notes = []
        if self.scored and self.scores.max() == self.scores.min():
            notes.append("the retriever's scores are all equal: the readout alone decides")
        if readout_scores.max() == readout_scores.min():
            notes.append("the readout's scores are all equal: the retriever alone decides")
        return notes


def separate_scores(candidates: Candidates) -> tuple[list[str], list[float] | None]:
    """Names and scores of candidates; the scores are None if candidates are bare names."""
    if isinstance(candidates, Mapping):
        candidates = list(candidates.items())
    if isinstance(candidates, str) or not isinstance(candidates, Sequence):
        raise ScoreError(
            f"candidates of type {type(candidates).__name__}, expected a list of pages, of (page, score), or "
            "a dict of scores by page"
        )
    bare = [candidate for candidate in candidates if isinstance(candidate, str)]
    if bare and len(bare) < len(candidates):
        raise ScoreError(
            f"{len(bare)} of {len(candidates)} candidates have no score ({shorten(bare)}); give all, or none"
        )
    if bare or not candidates:
        return bare, None
    pairs = [_name_and_score(candidate) for candidate in candidates]
    scores = [score for _, score in pairs]
    finite_scores(scores, Ragged.of_lengths([len(scores)]), what="the candidates' scores")
    return [name for name, _ in pairs], scores


def _name_and_score(candidate: object) -> tuple[str, float]:
    """The parts of a candidate with a score; numbers of numpy and torch count as numbers, text does not."""
    if isinstance(candidate, Candidate):
        return candidate.page_id, float(candidate.score)
    if isinstance(candidate, tuple | list) and len(candidate) == 2:
        name, score = candidate
        if isinstance(name, str) and isinstance(score, SupportsFloat) and not isinstance(score, str):
            return name, float(score)
    raise ScoreError(f"candidate {candidate!r}, expected a page, or (page, score) with a number as score")


def resolve_names(
    names: Sequence[str], store: PageStore, unstored_pages: UnstoredPages, source: PageSource | None
) -> tuple[list[str], dict[str, UnstoredPage]]:
    """The page id of every name, and the pages among them that are in no store, encoded from `source`."""
    page_id_of = store.lookup_many(names)
    missing = [name for name in dict.fromkeys(names) if name not in page_id_of]
    unstored: dict[str, UnstoredPage] = {}
    if missing and source is not None:
        for name, page in unstored_pages.find(missing, source).items():
            page_id_of[name] = page.page_id
            if page.page_id not in store:
                unstored[page.page_id] = page
    unknown = [name for name in missing if name not in page_id_of]
    if unknown:
        tried = "" if source is None else ", nor in encode_missing"
        raise StoreError(
            f"pages not in the page store at {store.uri}{tried}: {shorten(unknown)}; index them, "
            "leave them out, or pass their images or files as encode_missing"
        )
    return [page_id_of[name] for name in names], unstored


def keep_best_scores(page_ids: Sequence[str], scores: Sequence[float]) -> tuple[list[str], Floats]:
    """Each page once, at its highest score."""
    best: dict[str, float] = {}
    for page_id, score in zip(page_ids, scores, strict=True):
        best[page_id] = max(score, best.get(page_id, score))
    return list(best), np.array(list(best.values()), dtype=np.float64)


def drop_unreadable(candidates: CandidateList, store: PageStore) -> CandidateList:
    """The list without pages that are damaged or not encoded yet, as far as the store has met them."""
    kept = [row for row, page_id in enumerate(candidates.page_ids) if page_id not in store.unreadable]
    if left_out := len(candidates.page_ids) - len(kept):
        note = f"{left_out} candidates left out: damaged or not encoded yet"
        page_ids = [candidates.page_ids[row] for row in kept]
        notes = [*candidates.notes, note]
        return replace(candidates, page_ids=page_ids, scores=candidates.scores[kept], notes=notes)
    return candidates


def note_pending(pending: Mapping[str, UnstoredPage]) -> list[str]:
    """Say how many pages had to be encoded for this query."""
    return [f"{len(pending)} candidates were encoded just now: indexing has not come to them"] * bool(pending)


def sort_candidates(page_ids: Sequence[str], scores: Floats) -> tuple[list[str], Floats]:
    """Best first, ties by id: one order, because the last digits of a sum depend on it."""
    order = sorted(range(len(page_ids)), key=lambda row: (-scores[row], page_ids[row]))
    return [page_ids[row] for row in order], scores[order]


def run_lists(
    lists: Sequence[CandidateList],
    shallow: ShallowPass,
    state: State,
    *,
    before_pass: Callable[[], None] = lambda: None,
) -> list[ShallowStates | None]:
    """States of each list, None if the model does not read it; what `before_pass` raises ends the work."""
    states: list[ShallowStates | None] = [None] * len(lists)
    share = len(lists) > 1 and state == "last" and shares_passes(shallow.backbone.device)
    for group in _group(lists, shallow, share=share):
        if len(group) == 1:
            states[group[0]] = _run_alone(lists[group[0]], shallow, state, before_pass)
            continue
        before_pass()
        for number, list_states in zip(group, _run_shared([lists[n] for n in group], shallow), strict=True):
            states[number] = list_states
    return states


def shares_passes(device: torch.device) -> bool:
    """Whether lists may share a pass: on a CPU that gains little and may change the last digits."""
    return device.type != "cpu"


def pages_per_pass(query_tokens: int, positions: int) -> int:
    """How many pages of `positions` a query of `query_tokens` runs over at once, one at the least."""
    entries = query_tokens * (query_tokens + positions)
    return max(1, min(PAGES_PER_PASS, PASS_ENTRIES // max(1, entries)))


def _group(lists: Sequence[CandidateList], shallow: ShallowPass, *, share: bool) -> list[list[int]]:
    """Numbers of the lists that run together: only those of one shape, so that no score changes."""
    alone: list[list[int]] = []
    groups_of_shape: dict[tuple[int, int], list[list[int]]] = {}
    for number, candidates in enumerate(lists):
        count = 0 if candidates.unread else len(candidates.page_ids)
        if not share or not MIN_SHARED_PAGES <= count <= PAGES_PER_PASS // 2:
            alone += [[number]] if count else []
            continue
        shape = _pass_shape(candidates, shallow)
        if pages_per_pass(*shape) < PAGES_PER_PASS:
            alone.append([number])
            continue
        groups = groups_of_shape.setdefault(shape, [[]])
        if sum(len(lists[other].page_ids) for other in groups[-1]) + count > PAGES_PER_PASS:
            groups.append([])
        groups[-1].append(number)
    return alone + [group for groups in groups_of_shape.values() for group in groups]


def _pass_shape(candidates: CandidateList, shallow: ShallowPass) -> tuple[int, int]:
    """Tokens after the page, and positions of the longest page, to which a pass is padded."""
    stored = [page_id for page_id in candidates.page_ids if page_id not in candidates.unstored]
    lengths = [len(page.prefix.positions) for page in candidates.unstored.values()]
    lengths += [entry.positions for entry in shallow.store.catalog.entries(stored)]
    return len(shallow.backbone.tokens.suffix(candidates.query)), max(lengths)


def _run_shared(lists: Sequence[CandidateList], shallow: ShallowPass) -> list[ShallowStates]:
    """The states of several lists from one pass."""
    unstored = {page_id: page.prefix for each in lists for page_id, page in each.unstored.items()}
    shared = shallow.run_lists([(each.query, each.page_ids) for each in lists], unstored=unstored)
    parts = torch.split(shared.states, [len(each.page_ids) for each in lists])
    return [replace(shared, states=states) for states in parts]


def _run_alone(
    candidates: CandidateList, shallow: ShallowPass, state: State, before_pass: Callable[[], None]
) -> ShallowStates:
    """The states of one list, in several passes if the list or its query is long."""
    unstored = {page_id: page.prefix for page_id, page in candidates.unstored.items()}
    count = pages_per_pass(*_pass_shape(candidates, shallow))
    passes = []
    for start in range(0, len(candidates.page_ids), count):
        before_pass()
        query_pages = (candidates.query, candidates.page_ids[start : start + count])
        passes.append(shallow.run_lists([query_pages], state=state, unstored=unstored))
    return ShallowStates(
        torch.cat([part.states for part in passes]),
        sum(part.reading_ms for part in passes),
        sum(part.compute_ms for part in passes),
    )


def rank_states(
    candidates: CandidateList, list_states: ShallowStates | None, calibration: Calibration, store: PageStore
) -> Ranking:
    """All candidates, best first: in the retriever's order if the model did not read them."""
    if list_states is None:
        latency = Latency(candidates.retrieval_ms, 0.0, 0.0, 0.0)
        pages = _order_pages(candidates, None, _name_pages(candidates, store), None)
        reasons = (candidates.unread if pages else "no candidates", *candidates.notes)
        return Ranking(candidates.query, tuple(pages), 0.0, latency, reranked=False, reasons=reasons)
    start = time.perf_counter()
    states: Floats = list_states.states.cpu().numpy().astype(np.float64)
    readout_scores = calibration.readout.score(states)
    predictor = calibration.target_readout
    predicted = None if predictor is None else predictor.predict(states)
    pages = _order_pages(candidates, readout_scores, _name_pages(candidates, store), predicted)
    notes = _caution(calibration.weight, candidates.weight)
    notes += [*candidates.notes, *candidates.note_ties(readout_scores)]
    latency = Latency(
        retrieval_ms=candidates.retrieval_ms,
        reading_ms=list_states.reading_ms,
        compute_ms=list_states.compute_ms,
        ranking_ms=1000 * (time.perf_counter() - start),
    )
    reranked = candidates.weight > 0 and len(pages) > 1
    return Ranking(candidates.query, tuple(pages), candidates.weight, latency, reranked, tuple(notes))


def _order_pages(
    candidates: CandidateList,
    readout_scores: Floats | None,
    references: Mapping[str, str],
    predicted_targets: Floats | None,
) -> list[RankedPage]:
    """Pages by fused score, best first; a tie, as all without the readout, as the retriever has it."""
    if not candidates.page_ids:
        return []
    lists = Ragged.of_lengths([len(candidates.page_ids)])
    retriever_ranks = lists.ranks(candidates.scores)
    weight = 0.0 if readout_scores is None else candidates.weight
    readout = np.full(lists.members, np.nan) if readout_scores is None else readout_scores
    retriever_z = standardize(candidates.scores, lists)
    readout_z = standardize(np.nan_to_num(readout), lists)
    retriever_parts, readout_parts = (1.0 - weight) * retriever_z, weight * readout_z
    fused_scores = retriever_parts + readout_parts
    order = np.lexsort((retriever_ranks, -fused_scores))
    relevance = relevance_scores(fused_scores[order], predicted_targets)
    return [
        RankedPage(
            page_id=candidates.page_ids[row],
            reference=references[candidates.page_ids[row]],
            fused_score=float(fused_scores[row]),
            retriever_score=float(candidates.scores[row]),
            readout_score=float(readout[row]),
            retriever_z=float(retriever_z[row]),
            readout_z=float(readout_z[row]),
            retriever_part=float(retriever_parts[row]),
            readout_part=float(readout_parts[row]),
            rank=rank,
            retriever_rank=int(retriever_ranks[row]),
            relevance_score=float(relevance[rank - 1]),
        )
        for rank, row in enumerate(order.tolist(), start=1)
    ]


def relevance_scores(fused_scores: Floats, predicted_margins: Floats | None) -> Floats:
    """(pages,) fused scores in descending order → (pages,) scores from 0 to 1 that never rise.

    With the margins (pages,) that the full model is predicted to give these pages, in any order,

        sigmoid(μ + σ F / σ_F),

    μ and σ the mean and the standard deviation of the margins, F a fused score and σ_F the standard deviation
    of the fused scores (sigmoid(μ) if σ_F = 0): the fused order at the level of the model's own odds of yes,
    so that lists of different queries can be compared. Without predicted margins the score says no more than
    the rank: (n − rank + 1) / (n + 1) in a list of n pages.
    """
    count = len(fused_scores)
    if predicted_margins is None:
        return (count - np.arange(count)) / (count + 1)
    spread = fused_scores.std()
    steps = fused_scores / spread if spread > 0 else np.zeros(count)
    scores: Floats = expit(predicted_margins.mean() + predicted_margins.std() * steps)
    return scores


def require_min_score(min_score: float | None, calibration: Calibration) -> None:
    """Refuse a `min_score` outside 0 to 1, or one that only a rank could be compared with."""
    if min_score is None:
        return
    if not isinstance(min_score, int | float) or not 0.0 <= min_score <= 1.0:
        raise ScoreError(f"min_score is {min_score!r}, expected a number from 0 to 1")
    if calibration.target_readout is None:
        raise ScoreError(
            "min_score needs relevance scores that can be compared across queries, and this calibration "
            f"predicts no margin (its target is the {calibration.target}), so its scores are only ranks; "
            "calibrate with the target margin, or leave min_score out"
        )


def drop_low_scores(ranking: Ranking, min_score: float | None) -> Ranking:
    """The ranking without pages whose relevance score is below `min_score`; the others keep their ranks."""
    if min_score is None or not ranking.pages:
        return ranking
    pages = tuple(page for page in ranking.pages if page.relevance_score >= min_score)
    if pages:
        return replace(ranking, pages=pages)
    best = ranking.pages[0].relevance_score
    lack = f"no page reaches min_score {min_score:g}: the best of {len(ranking.pages)} has {best:.2f}"
    return replace(ranking, pages=(), reasons=(*ranking.reasons, lack))


def _caution(calibrated: WeightEstimate, weight: float) -> list[str]:
    """Why the calibrated weight is not an estimate, said with every ranking that uses it."""
    if not calibrated.cause or weight != calibrated.weight:
        return []
    order = "the pages are in the retriever's order" if weight == 0 else "the weight is a default"
    return [f"weight {weight:g}, {order}: {calibrated.cause}"]


def _name_pages(candidates: CandidateList, store: PageStore) -> dict[str, str]:
    """What each candidate is called, by page id."""
    stored = [page_id for page_id in candidates.page_ids if page_id not in candidates.unstored]
    references = dict(zip(stored, store.references(stored), strict=True))
    return references | {page_id: page.reference for page_id, page in candidates.unstored.items()}
