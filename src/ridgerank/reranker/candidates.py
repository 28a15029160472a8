"""A candidate list from the pages that users name to its ranking.

Names become a list of known pages with scores, the model's states over their prefixes are computed (lists of
one shape share a pass, long lists are cut into several), and both scores are fused and sorted (eq. 1 and 2).
"""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, SupportsFloat, TypeAlias, TypedDict

import numpy as np
import torch
from PIL.Image import Image
from scipy.special import expit

from ridgerank.backbones.base import Backbone
from ridgerank.backbones.text import CausalText
from ridgerank.calibration.artifact import Calibration
from ridgerank.documents.images import decode_image
from ridgerank.documents.render import page_from_image, page_from_text
from ridgerank.documents.sources import digest_bytes, file_page_id
from ridgerank.errors import DocumentError, ScoreError
from ridgerank.fusion.standardize import standard_deviations, standardize
from ridgerank.lineage import Lineage
from ridgerank.ragged import Floats, Ragged, finite_scores
from ridgerank.records import Candidate, Latency, Page, RankedPage, Ranking, State
from ridgerank.scoring.shallow import ShallowPass, ShallowStates
from ridgerank.store.codec import compress
from ridgerank.store.layout import Basis, PackedPrefix
from ridgerank.store.page_filter import PageFilter
from ridgerank.store.page_store import ByteLRU, PageStore
from ridgerank.store.sidecar import locate_pages, render_locations

PAGES_PER_PASS = 64
"""More candidates than this run in several passes: memory grows with the pages of a pass."""
MIN_SHARED_PAGES = 8
"""Fewer candidates run in a pass of their own: products of few rows are summed in another order."""
PASS_ENTRIES = PAGES_PER_PASS * 256 * (256 + 1280)
"""Entries of the attention matrix of one head in one pass: those of `PAGES_PER_PASS` pages of 1,280 positions
for a query of 256 tokens. A longer query runs over fewer pages at once: its matrix grows with its square."""
SHORT_LIST = 5
"""A shorter list is standardized by the calibration's mean deviations: two documents would cancel out."""
ORDER_OFFSET = 1.0
"""Of documents in a retriever's order the n-th, from 0, scores 1 / (this + n)."""
PAGE_NAME = re.compile(r"[0-9a-f]{64}|[^\n]{1,400}#[0-9]{1,9}")
"""The form of a page's id and of its reference. Any other string that names no stored page is a text."""


@dataclass(frozen=True, slots=True, eq=False)
class Document:
    """What is to be ranked: a stored page by one of its names, or else a text or an image by itself."""

    names: tuple[object, ...] = ()
    """What may be a page's id or reference, tried in this order; anything but text is skipped."""
    text: str | None = None
    """What the model reads if the store knows no name; a text that has the form of one is none."""
    image: Callable[[], Image | Page | bytes] | None = None
    """The page's image, or the bytes of its file, fetched only if the store knows no name."""
    score: float | None = None
    """The retriever's score, if there is one."""

    @property
    def page_names(self) -> list[str]:
        """The names that are text."""
        return [name for name in self.names if isinstance(name, str) and name]


CandidateLike: TypeAlias = Document | Candidate | tuple[str, float] | str
"""A document, or the name of a page or a text, with the retriever's score or without."""
Candidates: TypeAlias = Sequence[CandidateLike] | Mapping[str, float]
"""What `rank` takes: a list, or scores by page."""
OnMissing: TypeAlias = Literal["keep", "drop", "error"]


class ListOptions(TypedDict, total=False):
    """How `Reranker.rank` takes a list."""

    weight: float | None
    """Stands in for the calibrated weight. At 1 the readout alone ranks, and no retriever is asked."""
    retriever: str | None
    """Whose scores or order the documents come with: the calibrated weight is for one retriever."""
    order: Literal["retriever"] | None
    """Documents without scores come in a retriever's order, best first; else their order says nothing."""
    on_missing: OnMissing
    """Documents that cannot be scored stand after the others (`keep`), are left out, or are an error."""
    max_tokens_per_doc: int | None
    """Read no more of a text that is not stored."""
    seconds: float | None
    """Encode no further documents after this time: the others stand after those that were read."""
    max_encoded: int | None
    """Encode no more documents than this, the best by the retriever's scores."""
    within: PageFilter | None
    """Leave out stored pages that this filter does not let through."""
    before_encoding: Callable[[], None]
    """Called before each document is encoded; what it raises ends the work."""


def to_documents(candidates: Candidates) -> list[Document]:
    """Candidates as documents, however they are written."""
    if isinstance(candidates, Mapping):
        candidates = list(candidates.items())
    if isinstance(candidates, str) or not isinstance(candidates, Sequence):
        raise ScoreError(
            f"candidates of type {type(candidates).__name__}, expected a list of pages or texts, of "
            "(page, score), or a dict of scores by page"
        )
    documents = [_to_document(candidate) for candidate in candidates]
    scores = [document.score for document in documents if document.score is not None]
    finite_scores(scores, Ragged.of_lengths([len(scores)] if scores else []), what="the candidates' scores")
    return documents


def _to_document(candidate: object) -> Document:
    """One candidate; numbers of numpy and torch count as scores, text does not."""
    score: object = None
    if isinstance(candidate, Document):
        return candidate
    if isinstance(candidate, Candidate):
        candidate = (candidate.page_id, candidate.score)
    if isinstance(candidate, tuple | list) and len(candidate) == 2:
        candidate, score = candidate
        if not isinstance(score, SupportsFloat) or isinstance(score, str):
            candidate = None
    if not isinstance(candidate, str):
        raise ScoreError("a candidate of another kind, expected a page, a text, or (page, score), a number")
    number = float(score) if isinstance(score, SupportsFloat) else None
    return Document((candidate,), candidate, score=number)


class UnstoredPages:
    """Encodes pages for a store without writing to it; safe for any number of threads."""

    def __init__(
        self, backbone: Backbone, lineage: Lineage, *, capacity_bytes: int, basis: Basis | None = None
    ) -> None:
        """`basis` is the store's, if its pages are not int8."""
        self._backbone = backbone
        self._lineage = lineage
        self._basis = basis
        self._held: ByteLRU[str, PackedPrefix] = ByteLRU(capacity_bytes)

    def encode_pending(self, store: PageStore, page_ids: Sequence[str]) -> dict[str, PackedPrefix]:
        """Those of these pages that are stored without a prefix, from their documents; a blank one is blank.

        Pages that cannot be read any more are left out.
        """
        pending = [entry.page_id for entry in store.catalog.entries(page_ids) if not entry.nbytes]
        held = {page_id: self._held.get(page_id) for page_id in pending}
        missing = [page_id for page_id, prefix in held.items() if prefix is None]
        budget = self._backbone.page_budget
        for page in render_locations(locate_pages(store, missing), max_pixels=budget) if missing else ():
            if isinstance(page, Page):
                held[page.page_id] = self.encode(page)
        return {page_id: prefix for page_id, prefix in held.items() if prefix is not None}

    def encode(self, page: Page) -> PackedPrefix:
        """A page as the store would hold it, from memory if it was encoded lately."""
        packed = self._held.get(page.page_id)
        if packed is None:
            storage = self._lineage.storage
            [prefix] = self._backbone.encode([self._backbone.content(page)], exit_layer=storage.exit_layer)
            packed = compress(prefix, storage.keep, self._basis)
            self._held.put(page.page_id, packed)
        return packed


@dataclass(frozen=True, slots=True, eq=False)
class MatchedDocuments:
    """The documents of a list, matched with the pages of a store."""

    page_ids: list[str]
    """The page of each document, in the order sent; of one that cannot be scored, its name in the list."""
    unstored: dict[str, Page]
    """Texts and images that are in no store, by page id."""
    unscored: dict[str, tuple[str, str]]
    """Documents that cannot be scored: place in the list → what they are called, and why."""
    dropped: bool
    """Whether these are left out."""
    notes: list[str] = field(default_factory=list)

    @property
    def names(self) -> dict[str, str]:
        """What documents that are in no store are called, by page id."""
        return {page_id: page.reference for page_id, page in self.unstored.items()}

    def tail(self, late: Mapping[str, float], store: PageStore) -> list[tuple[str, str, float]]:
        """What stands after all others: pages that were not read, with their scores, and what has none."""
        names = self.names
        stored = [page_id for page_id in late if page_id not in names]
        names |= dict(zip(stored, store.references(stored), strict=True))
        tail = [(page_id, names[page_id], score) for page_id, score in late.items()]
        unscored = {} if self.dropped else self.unscored
        return tail + [(place, called, float("nan")) for place, (called, _) in unscored.items()]


def match_documents(
    documents: Sequence[Document], store: PageStore, backbone: Backbone, options: ListOptions
) -> MatchedDocuments:
    """Find each document by its names, asking the store once, else make a page of its image or its text."""
    on_missing = options.get("on_missing", "keep")
    max_tokens = options.get("max_tokens_per_doc") or None  # 0 is no limit, as in Cohere
    known_pages = store.lookup_many(name for document in documents for name in document.page_names)
    matched = MatchedDocuments([], {}, {}, dropped=on_missing == "drop")
    cut = 0
    for index, document in enumerate(documents):
        page_id = next((known_pages[name] for name in document.page_names if name in known_pages), None)
        name = f"documents[{index}]"
        if page_id is None:
            try:
                page, was_cut = _make_page(document, name, store, backbone, max_tokens)
                page_id, cut = page.page_id, cut + was_cut
                if page_id not in store:
                    matched.unstored[page_id] = page
            except (DocumentError, OSError, ValueError) as error:  # a file that is gone, what is not base64
                if on_missing == "error":
                    raise DocumentError(f"{name}: {error}") from error
                page_id, matched.unscored[name] = name, ((*document.page_names, name)[0], str(error))
        matched.page_ids.append(page_id)
    if cut:
        limit = "as many tokens as the model reads" if max_tokens is None else f"{max_tokens} tokens"
        matched.notes.append(f"{cut} texts were cut after {limit}")
    if matched.unscored:
        fate = "left out" if matched.dropped else "put last"
        shown = "; ".join(f"{place}: {why}" for place, (_, why) in list(matched.unscored.items())[:3])
        matched.notes.append(f"{len(matched.unscored)} documents cannot be scored and are {fate}: {shown}")
    return matched


def _make_page(
    document: Document, name: str, store: PageStore, backbone: Backbone, max_tokens: int | None
) -> tuple[Page, bool]:
    """A document that has no stored page's name as a page, and whether its text was cut."""
    text = "" if PAGE_NAME.fullmatch(document.text or "") else document.text or ""
    if document.image is not None:
        image = document.image()
        if isinstance(image, bytes):
            page_id = file_page_id(digest_bytes(image), 1)
            image = decode_image(image)
            if page_id in store:  # the image of an indexed file, by its bytes
                return Page(page_id, name, image, text), False
        if not isinstance(image, Page):
            image = page_from_image(image, name, max_pixels=backbone.page_budget, text=text)
        if backbone.reads_text and not image.text.strip():
            raise DocumentError(
                "an image without text, and the model of this store reads text; send its text, or index its "
                "document with OCR"
            )
        return image, False
    if not text.strip():
        shown = ", ".join(repr(each if len(each) <= 40 else f"{each[:39]}…") for each in document.page_names)
        if not shown or not shown.strip(" '"):
            raise DocumentError("empty; send a text, an image or the name of a stored page")
        raise DocumentError(f"{shown} names no page of the store; index it, or send its text or its image")
    if not isinstance(backbone, CausalText):
        raise DocumentError(
            "a text, and the model of this store reads page images; index its document, or send its image"
        )
    spans = backbone.text_spans(text)
    end = spans[:max_tokens][-1][1] if spans else len(text)
    return page_from_text(text if max_tokens is None else text[:end], name), bool(text[end:].strip())


def collect_scores(
    documents: Sequence[Document], matched: MatchedDocuments, store: PageStore, within: PageFilter | None
) -> tuple[dict[str, float], bool]:
    """Page id → score, in the order sent, each page once at its highest; and whether scores were sent.

    If they were not, the scores are those of the order.
    """
    selected = store.select(within).page_ids | matched.unstored.keys() if within else None
    with_score = sum(document.score is not None for document in documents)
    scored = 0 < with_score == len(documents)
    if with_score and not scored:
        lack = f"{with_score} of {len(documents)} documents have a score, so none counts; send all, or none"
        matched.notes.append(lack)
    best: dict[str, float] = {}
    repeated = left_out = 0
    for place, (page_id, document) in enumerate(zip(matched.page_ids, documents, strict=True)):
        if selected is not None and page_id not in matched.unscored and page_id not in selected:
            left_out += 1
        elif page_id not in matched.unscored:
            repeated += page_id in best
            score = float(document.score or 0.0) if scored else 1.0 / (ORDER_OFFSET + place)
            best[page_id] = max(score, best.get(page_id, score))
    if left_out:
        matched.notes.append(f"{left_out} candidates left out: not of {within}")
    if repeated:
        matched.notes.append(f"{repeated} repeated candidates count once, at their highest score")
    return best, scored


def sort_candidates(scores: Mapping[str, float]) -> list[str]:
    """Page ids, best first, ties by id: one order, because the last digits of a sum depend on it."""
    return sorted(scores, key=lambda page_id: (-scores[page_id], page_id))


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
    calibrated: bool = True
    """Whether they are those of the retriever that the calibration was made for."""
    unstored: dict[str, PackedPrefix] = field(default_factory=dict)
    """Prefixes of pages that the store has none of, by page id."""
    names: dict[str, str] = field(default_factory=dict)
    """What pages that are in no store are called, by page id."""
    sent: list[str] = field(default_factory=list)
    """The page of each document in the order sent, which equal scores keep; none after a search."""
    tail: list[tuple[str, str, float]] = field(default_factory=list)
    """Id, reference and retriever's score of pages that stand after all others, unread, in this order."""
    notes: list[str] = field(default_factory=list)
    unread: str = ""
    """Why the model does not run and the retriever's order stays; empty if it runs."""
    retrieval_ms: float = 0.0


def drop_unreadable(candidates: CandidateList, store: PageStore) -> CandidateList:
    """The list without pages that are damaged or not encoded yet, as far as the store has met them."""
    kept = [row for row, page_id in enumerate(candidates.page_ids) if page_id not in store.unreadable]
    if left_out := len(candidates.page_ids) - len(kept):
        note = f"{left_out} candidates left out: damaged or not encoded yet"
        page_ids = [candidates.page_ids[row] for row in kept]
        notes = [*candidates.notes, note]
        return replace(candidates, page_ids=page_ids, scores=candidates.scores[kept], notes=notes)
    return candidates


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
    lengths = [len(prefix.positions) for prefix in candidates.unstored.values()]
    lengths += [entry.positions for entry in shallow.store.catalog.entries(stored)]
    return len(shallow.backbone.tokens.suffix(candidates.query)), max(lengths)


def _run_shared(lists: Sequence[CandidateList], shallow: ShallowPass) -> list[ShallowStates]:
    """The states of several lists from one pass."""
    unstored = {page_id: prefix for each in lists for page_id, prefix in each.unstored.items()}
    shared = shallow.run_lists([(each.query, each.page_ids) for each in lists], unstored=unstored)
    parts = torch.split(shared.states, [len(each.page_ids) for each in lists])
    return [replace(shared, states=states) for states in parts]


def _run_alone(
    candidates: CandidateList, shallow: ShallowPass, state: State, before_pass: Callable[[], None]
) -> ShallowStates:
    """The states of one list, in several passes if the list or its query is long."""
    count = pages_per_pass(*_pass_shape(candidates, shallow))
    passes = []
    for start in range(0, len(candidates.page_ids), count):
        before_pass()
        query_pages = (candidates.query, candidates.page_ids[start : start + count])
        passes.append(shallow.run_lists([query_pages], state=state, unstored=candidates.unstored))
    return ShallowStates(
        torch.cat([part.states for part in passes]),
        sum(part.reading_ms for part in passes),
        sum(part.compute_ms for part in passes),
    )


def rank_states(
    candidates: CandidateList, list_states: ShallowStates | None, calibration: Calibration, store: PageStore
) -> Ranking:
    """All candidates, best first: in the retriever's order if the model did not read them."""
    start = time.perf_counter()
    readout_scores = predicted = None
    weight, notes, reading_ms, compute_ms = 0.0, list(candidates.notes), 0.0, 0.0
    if list_states is not None:
        states: Floats = list_states.states.cpu().numpy().astype(np.float64)
        readout_scores, weight = calibration.readout.score(states), candidates.weight
        if calibration.target_readout is not None and weight > 0 and len(states) > 1:
            predicted = calibration.target_readout.predict(states)
        if calibration.weight.cause and weight == calibration.weight.weight:  # it is not an estimate
            order = "the pages are in the retriever's order" if weight == 0 else "the weight is a default"
            notes.insert(0, f"weight {weight:g}, {order}: {calibration.weight.cause}")
        if len(states) == 1:
            notes.append("one candidate: there is nothing to rank")
        elif readout_scores.max() == readout_scores.min():
            notes.append("the readout's scores are all equal: the retriever alone decides")
        reading_ms, compute_ms = list_states.reading_ms, list_states.compute_ms
    elif candidates.unread or not candidates.tail:
        notes = [candidates.unread or "no candidates", *notes]
    stored = [page_id for page_id in candidates.page_ids if page_id not in candidates.names]
    references = candidates.names | dict(zip(stored, store.references(stored), strict=True))
    pages = _order_pages(candidates, readout_scores, references, predicted, calibration)
    pages += _tail_pages(candidates, pages)
    ranking_ms = 1000 * (time.perf_counter() - start)
    return Ranking(
        candidates.query,
        tuple(pages),
        weight,
        Latency(candidates.retrieval_ms, reading_ms, compute_ms, ranking_ms),
        reranked=weight > 0 and len(candidates.page_ids) > 1,
        reasons=tuple(notes),
    )


def _order_pages(
    candidates: CandidateList,
    readout_scores: Floats | None,
    references: Mapping[str, str],
    predicted_targets: Floats | None,
    calibration: Calibration,
) -> list[RankedPage]:
    """Pages by fused score, best first; a tie as the retriever has it, else as the pages were sent."""
    count = len(candidates.page_ids)
    if not count:
        return []
    places = {page_id: place for place, page_id in reversed(list(enumerate(candidates.sent)))}
    sent = np.array([places.get(page_id, row) for row, page_id in enumerate(candidates.page_ids)])
    retriever_ranks = np.empty(count, dtype=np.int64)
    retriever_ranks[np.lexsort((sent, -candidates.scores))] = np.arange(1, count + 1)
    weight = 0.0 if readout_scores is None else candidates.weight
    readout = np.full(count, np.nan) if readout_scores is None else readout_scores
    retriever_spread, lists = float("nan"), calibration.lists
    if candidates.calibrated and lists is not None and len(lists.lists):
        retriever_spread = float(standard_deviations(lists.retriever, lists.lists).mean())
    retriever_z = _standardize_list(candidates.scores, retriever_spread)
    readout_z = _standardize_list(np.nan_to_num(readout), calibration.diagnostics.readout_spread)
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


def _standardize_list(scores: Floats, deviation: float) -> Floats:
    """z of one list, eq. 1; with `deviation` in the place of its own if it is short and this is known."""
    if len(scores) >= SHORT_LIST or not deviation > 0:
        return standardize(scores, Ragged.of_lengths([len(scores)]))
    centered: Floats = (scores - scores.mean()) / deviation
    return centered


def _tail_pages(candidates: CandidateList, pages: Sequence[RankedPage]) -> list[RankedPage]:
    """The pages that stand after all others, with scores below theirs."""
    fused, relevance = (pages[-1].fused_score, pages[-1].relevance_score) if pages else (0.0, 1.0)
    count = len(candidates.tail)
    return [
        RankedPage(
            page_id=page_id,
            reference=reference,
            fused_score=fused - number,
            retriever_score=score,
            readout_score=float("nan"),
            retriever_z=0.0,
            readout_z=0.0,
            retriever_part=0.0,
            readout_part=0.0,
            rank=len(pages) + number,
            retriever_rank=len(pages) + number,
            relevance_score=relevance * (count - number + 1) / (count + 1),
        )
        for number, (page_id, reference, score) in enumerate(candidates.tail, start=1)
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
    if not ranking.reranked:
        lack = "min_score was not applied: without the model, scores are only ranks"
        return replace(ranking, reasons=(*ranking.reasons, lack))
    pages = tuple(page for page in ranking.pages if page.relevance_score >= min_score)
    if pages:
        return replace(ranking, pages=pages)
    best = ranking.pages[0].relevance_score
    lack = f"no page reaches min_score {min_score:g}: the best of {len(ranking.pages)} has {best:.2f}"
    return replace(ranking, pages=(), reasons=(*ranking.reasons, lack))
