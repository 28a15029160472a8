"""Calibration from end to end: `make_lists`, `fit` (`fit.py`), `weigh` (`weight.py`) and `save`.

`calibrate` calls these four, which may be called one by one. Only pages whose targets are missing are encoded
again: an interrupted calibration goes on where it stopped.
"""

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias, TypedDict, Unpack
from zipfile import BadZipFile

import numpy as np
import torch
from numpy.typing import NDArray

from ridgerank.atomic import replace_file
from ridgerank.backbones.base import Backbone
from ridgerank.backbones.load import parse_dtype
from ridgerank.backbones.model_settings import PRESETS, ModelSettings, available_targets
from ridgerank.calibration.artifact import (
    DEFAULT_NAME,
    Calibration,
    Diagnostics,
    ReadoutOption,
    calibration_path,
    plot_calibration,
)
from ridgerank.calibration.fit import (
    LEAST_LISTS,
    CalibrationLists,
    Fits,
    QueryLists,
    ReadoutFit,
    fit,
    predict_target,
)
from ridgerank.calibration.queries import QUERIES, cut_questions, reorder_words
from ridgerank.calibration.readout_file import ReadoutFile
from ridgerank.calibration.teacher import (
    OWN,
    CandidateLists,
    TargetCache,
    complete_targets,
    digest_query,
    keep_scored,
    read_teacher,
    target_column,
)
from ridgerank.calibration.weight import Reading, Scorer, Weighed, mean_interval, weigh
from ridgerank.documents.sources import text_page_id
from ridgerank.errors import CalibrationError
from ridgerank.fusion.standardize import standard_deviations
from ridgerank.indexing.index import encode_pending
from ridgerank.ragged import Floats, Ragged
from ridgerank.readout import Readout
from ridgerank.records import STATES, Candidate, Query, State, Target, document_name
from ridgerank.retrievers.base import AmongPages, Retriever
from ridgerank.retrievers.bm25 import BM25
from ridgerank.retrievers.load import load_retriever
from ridgerank.scoring.shallow import ShallowPass
from ridgerank.store.page_filter import PageSelection
from ridgerank.store.page_store import PageRow, PageStore, StoredPage, ids_filter
from ridgerank.store.sidecar import open_calibrations
from ridgerank.store.store_writer import StoreWriter
from ridgerank.trec import Qrels

CANDIDATES = 20
"""K, as in the paper."""
READ_PAGES = 100
"""Pages read at full depth, at most: the queries that readouts are fitted to share their candidates."""
KEPT_PAIRS = 8192
"""Of a query and a page whose states are kept, at most."""
READ_TEXTS = 400
"""Texts that a calibration on texts reads, at most."""
TARGETS_STEP, STATES_STEP = "full-depth targets", "shallow states"
"""The steps of a calibration that take time."""

Progress: TypeAlias = Callable[[str, int, int], None]
"""Called with a step, how much of it is done (0 at first), and how much there is to do."""


class ListOptions(TypedDict, total=False):
    """What `make_lists` may be told."""

    queries: Sequence[Query] | None
    """What a readout is fitted to; by default questions cut from the pages."""
    qrels: Qrels | None
    candidates: int
    query_count: int
    read_pages: int
    """How many pages to read at full depth, at most, where no teacher is given."""
    documents: Sequence[str | Path]
    """Files and folders to render pages from again; by default, those they were indexed from."""
    target: Target | None
    state: State | None
    """Chosen by measure if they are not given."""
    teacher: str | Path
    """A TREC run whose scores to learn in place of the model's own, made by any reranker."""
    progress: Progress


@dataclass(frozen=True, slots=True)
class Workbench:
    """What a calibration needs: a store with its model, its retriever, the folder of its calibrations."""

    shallow: ShallowPass
    retriever: Retriever
    folder: Path

    @property
    def retriever_fields(self) -> dict[str, Any]:
        """What a calibration records of the retriever."""
        name, identity, source = self.retriever.name, self.retriever.identity, self.retriever.source
        return {"retriever": name, "retriever_identity": identity or name, "retriever_source": source or name}

    @property
    def incumbent(self) -> float:
        """The weight of the readout if it and every retriever have an equal say."""
        return 1.0 / (self.retriever.members + 1)

    @property
    def keeps_paper(self) -> bool:
        """Whether the model keeps the paper's reading: it looks at pages, or is a trained reranker."""
        model = self.shallow.backbone
        return not model.reads_text or model.prompt.name in PRESETS or model.ranking_head is not None


@contextmanager
def open_workbench(
    store: str | Path | PageStore,
    *,
    backbone: Backbone | str | None = None,
    retriever: Retriever | str | None = None,
    device: str | None = None,
    dtype: str | torch.dtype | None = None,
) -> Iterator[Workbench]:
    """Open a store, by default with its own backbone and the retriever of its vectors, else BM25."""
    pages = store if isinstance(store, PageStore) else PageStore.open(str(store))
    with open_calibrations(pages.uri, edit=True) as folder:
        if not isinstance(retriever, Retriever):
            retriever = load_retriever(retriever, pages, device=device, dtype=parse_dtype(dtype))
        if not isinstance(backbone, Backbone):
            settings = ModelSettings.from_lineage(pages.lineage, name=backbone, device=device, dtype=dtype)
            backbone = settings.load()
        yield Workbench(ShallowPass(backbone, pages), retriever, folder)


def calibrate(
    store: str | Path | PageStore,
    *,
    backbone: Backbone | str | None = None,
    retriever: Retriever | str | None = None,
    name: str = DEFAULT_NAME,
    queries_from: str = "given",
    readout: ReadoutFile | None = None,
    texts: Mapping[str, str] | None = None,
    export: Path | None = None,
    device: str | None = None,
    dtype: str | torch.dtype | None = None,
    **options: Unpack[ListOptions],
) -> Calibration:
    """Fit a readout and a weight to a store and its retriever, and save them beside the store.

    No judgements are needed. Without `queries`, questions are cut from the pages; with `qrels` the weight is
    that of the judgements. `queries_from` tells the report where queries come from. With a `readout` nothing
    is fitted: it is weighed. With `texts`, by name, it is for such texts in the place of the pages. `export`
    is a file for all lists. The other options are those of `make_lists`.
    """
    opened = partial(open_workbench, backbone=backbone, retriever=retriever, device=device, dtype=dtype)
    calibration_path(Path(), name)  # refuses a bad name before any work
    with opened(store) as own, over_texts(own, texts) as workbench:
        if readout is not None:
            readout.require(workbench.shallow.backbone, workbench.shallow.store.lineage)
        lists = make_lists(workbench, readout=readout, **options)
        if export is not None:
            export_lists(lists, export)
        fits: Fits = {} if lists.fitted is None else fit(lists.fitted, lists.documents)
        weighed = weigh(
            lists,
            scorers(fits, lists, readout),
            incumbent=workbench.incumbent,
            keep_paper=workbench.keeps_paper,
        )
        return save(
            workbench,
            lists,
            fits,
            weighed,
            name=name,
            readout=readout,
            queries_from=queries_from if options.get("queries") or readout else _describe_questions(lists),
        )


@contextmanager
def over_texts(workbench: Workbench, texts: Mapping[str, str] | None) -> Iterator[Workbench]:
    """The same model over `READ_TEXTS` of these texts, if any are given, as stored here; BM25 finds them."""
    if texts is None:
        yield workbench
        return
    store, backbone = workbench.shallow.store, workbench.shallow.backbone
    if not backbone.reads_text:
        raise CalibrationError(
            "texts were given, and the model of this store reads page images; leave them out"
        )
    pages = {text_page_id(text): (name, text) for name, text in texts.items() if text.strip()}
    ids = sorted(pages)[:READ_TEXTS]
    stored = [StoredPage(each, (pages[each][0],), "", pages[each][1], b"") for each in ids]
    with TemporaryDirectory(prefix="ridgerank-") as folder:
        with StoreWriter(folder, store.lineage, store.basis) as writer:
            writer.append([PageRow(page, None) for page in stored])
        encode_pending(folder, backbone, ids, seconds=math.inf, progress=lambda _: None)
        with PageStore.open(folder) as opened:
            yield replace(workbench, shallow=workbench.shallow.over(opened), retriever=BM25(opened))


def make_lists(
    workbench: Workbench,
    *,
    readout: ReadoutFile | None = None,
    **options: Unpack[ListOptions],
) -> CalibrationLists:
    """What to fit, and what to weigh it by.

    Targets are those of the store's own model, of which missing ones are computed and kept in its cache, or
    the scores of a `teacher`; candidates that the file does not score are left out, and so are pages that
    are not encoded yet. With a `readout` nothing is to be fitted, and no page is read at full depth.
    """
    candidates, progress = options.get("candidates", CANDIDATES), options.get("progress", lambda *_: None)
    target, state, qrels = options.get("target"), options.get("state"), options.get("qrels")
    queries, teacher = options.get("queries") or (), options.get("teacher")
    store, backbone, retriever = workbench.shallow.store, workbench.shallow.backbone, workbench.retriever
    page_ids, texts = store.page_ids(), store.texts()
    if pending := store.pending():
        page_ids = [page_id for page_id in page_ids if page_id not in pending]
        texts = {page_id: texts[page_id] for page_id in page_ids}
        retriever = AmongPages(retriever, _select(page_ids))
    names = map(document_name, store.references(page_ids))
    first = {query.text: query for query in reversed(queries)}
    asked = tuple(first[text] for text in dict.fromkeys(query.text for query in queries))
    cut = cut_questions(texts, options.get("query_count", QUERIES))
    made = tuple(query for query in cut if retriever.answers(query.text))
    targets = available_targets(store.lineage.prompt_name) if target is None else (target,)
    shared: CandidateLists = {}
    columns: dict[Target, Floats] = {}
    scores = read_teacher(Path(teacher), store) if teacher else None
    if readout is None:
        fitted = asked or made
        if len(fitted) < LEAST_LISTS:
            raise CalibrationError(
                f"{len(fitted)} different queries, expected at least {LEAST_LISTS}; give them in a file: no "
                f"judgements are needed{'' if asked else '. Or read pages without text with index --ocr'}"
            )
        free = find_candidates(retriever, fitted, candidates)
        if scores is None:
            shared = share_pages(retriever, free, candidates, pages=options.get("read_pages", READ_PAGES))
            cache = TargetCache(workbench.folder, store.lineage)
            complete_targets(
                backbone,
                store,
                cache,
                {query.text: pages for query, pages in shared.items()},
                targets=targets,
                documents=[Path(path) for path in options.get("documents", ())],
                progress=partial(progress, TARGETS_STEP),
            )
            if None in target_column(cache, targets[0], shared):  # a page that cannot be read any more
                shared = keep_scored(shared, cache, targets[0])
            columns = {each: np.array(target_column(cache, each, shared), float) for each in targets}
        else:
            shared = keep_scored(free, scores, "teacher")
            columns = {"teacher": np.array(target_column(scores, "teacher", shared), float)}
    found = find_candidates(retriever, [*asked, *made], candidates)
    of_made = {query: found[query] for query in made if query in found}
    of_asked = {query: found[query] for query in asked if query in found}
    if readout is not None:
        state = readout.calibration.state
    total = len(shared) + 2 * len(of_made) + len(of_asked)
    kept = workbench.folder / "states.npz"
    run = StatePasses(workbench.shallow, STATES if state is None else (state,), progress, total, kept)
    members = ((query, each.page_id) for query, pages in of_made.items() for each in pages)
    sources = np.array([float(page == query.source) for query, page in members])
    lists = CalibrationLists(
        fitted=run.lists(shared, targets=columns),
        made=run.lists(of_made, sources),
        reordered=run.lists(of_made, sources, rewrite=reorder_words),
        asked=run.lists(of_asked, None if qrels is None else _read_relevance(store, qrels, of_asked)),
        documents=dict(zip(page_ids, names, strict=True)),
        teacher=OWN if scores is None else scores.name,
    )
    run.save()
    return lists


class StatePasses:
    """Runs lists over the stored pages, and counts them; states in the file, if one is given, are read."""

    def __init__(
        self, shallow: ShallowPass, states: Sequence[State], progress: Progress, total: int, file: Path | None
    ) -> None:
        self._shallow, self._states, self._total, self._done = shallow, states, total, 0
        self._progress = partial(progress, STATES_STEP)
        self._progress(0, total)
        self._made_by = f"{shallow.store.lineage.to_json()} {shallow.backbone.dtype}"
        self._file, self._known = file or Path(), dict[str, NDArray[np.float32]]()
        with suppress(OSError, ValueError, KeyError, BadZipFile), np.load(self._file) as kept:
            if str(kept["made_by"]) == self._made_by:
                self._known = dict(zip(kept["pairs"].tolist(), kept["states"], strict=True))

    def lists(
        self,
        candidates: CandidateLists,
        relevance: Floats | None = None,
        *,
        targets: Mapping[Target, Floats] | None = None,
        rewrite: Callable[[str], str] = str,
    ) -> QueryLists | None:
        """The lists with states of the queries' texts, rewritten; None if there are none."""
        if not candidates:
            return None
        rows = []
        for query, pages in candidates.items():
            text = rewrite(query.text)
            pairs = {each.page_id: f"{digest_query(text)} {each.page_id}" for each in pages}
            if missing := [page for page, pair in pairs.items() if pair not in self._known]:
                both = self._shallow.run_both(text, missing)
                run = torch.stack([both[state] for state in STATES], dim=1).float().cpu().numpy()
                self._known |= zip([pairs[page] for page in missing], run, strict=True)
            rows += [self._known[pair] for pair in pairs.values()]
            self._done += 1
            self._progress(self._done, self._total)
        members = [each for pages in candidates.values() for each in pages]
        return QueryLists(
            queries=tuple(candidates),
            page_ids=tuple(each.page_id for each in members),
            lists=Ragged.of_lengths(map(len, candidates.values())),
            retriever=np.array([each.score for each in members]),
            states={
                state: np.stack([row[STATES.index(state)] for row in rows]).astype(np.float64)
                for state in self._states
            },
            targets=targets or {},
            relevance=relevance,
        )

    def save(self) -> None:
        """Keep the states of the last `KEPT_PAIRS` pairs, for another retriever or other queries."""
        pairs = list(self._known)[-KEPT_PAIRS:]
        states = np.array([self._known[pair] for pair in pairs], dtype=np.float32)
        with replace_file(self._file) as scratch, scratch.open("wb") as file:
            np.savez(file, made_by=self._made_by, pairs=pairs, states=states)


def find_candidates(retriever: Retriever, queries: Sequence[Query], k: int) -> dict[Query, list[Candidate]]:
    """The `k` best pages of each query; refused if all scores of every list are equal."""
    lists = retriever.search_many([query.text for query in queries], k) if queries else []
    if lists and all(len({candidate.score for candidate in candidates}) < 2 for candidates in lists):
        raise CalibrationError(
            f"{retriever.name} gives the candidates of each of {len(queries)} queries one and the same "
            "score: there is nothing to fuse with; use another retriever or other queries"
        )
    return {query: candidates for query, candidates in zip(queries, lists, strict=True) if candidates}


def share_pages(
    retriever: Retriever, free: CandidateLists, k: int, *, pages: int = READ_PAGES
) -> dict[Query, list[Candidate]]:
    """Candidates among so many pages: those that questions were made from, then those most queries have."""
    counts = Counter(each.page_id for candidates in free.values() for each in candidates)
    sources = [query.source for query in free if query.source]
    ordered = [*sources, *sorted(counts, key=lambda page: (-counts[page], page))]
    pool = sorted(list(dict.fromkeys(ordered))[:pages])
    if counts.keys() <= set(pool):
        return {query: list(candidates) for query, candidates in free.items()}
    lists = retriever.search_within([query.text for query in free], k, _select(pool))
    return {query: found for query, found in zip(free, lists, strict=True) if len(found) > 1}


def _select(page_ids: Sequence[str]) -> PageSelection:
    return PageSelection(frozenset(page_ids), ids_filter(page_ids))


def scorers(fits: Fits, lists: CalibrationLists, readout: ReadoutFile | None = None) -> dict[Reading, Scorer]:
    """What scores lists by each readout that could be fitted, or by the one of a file."""
    if readout is not None:
        made = readout.calibration
        return {(made.target, made.state): lambda lists: made.readout.score(lists.states[made.state])}
    return {
        reading: partial(each.score, documents=lists.documents)
        for reading, each in fits.items()
        if isinstance(each, ReadoutFit)
    }


def save(
    workbench: Workbench,
    lists: CalibrationLists,
    fits: Fits,
    weighed: Weighed,
    *,
    name: str = DEFAULT_NAME,
    readout: ReadoutFile | None = None,
    queries_from: str = "",
) -> Calibration:
    """Write the calibration, of the fit or of the readout file, beside the store, and its picture."""
    lineage, incumbent = workbench.shallow.store.lineage, workbench.incumbent
    common = workbench.retriever_fields | {"weight": weighed.weight, "lists": weighed.kept}
    fitted = fits.get(weighed.reading)
    if isinstance(fitted, ReadoutFit):
        calibration = Calibration(
            readout=Readout(fitted.vector, fitted.penalty.deployed, lineage),
            diagnostics=_diagnose(lists, fits, fitted, weighed, queries_from, incumbent),
            target=fitted.target,
            state=fitted.state,
            target_readout=predict_target(fitted) if fitted.target == "margin" else None,
            **common,
        )
    else:
        assert readout is not None  # a reading that was weighed was fitted, or is the file's
        calibration = replace(readout.over(lineage, queries_from, incumbent), **common)
    path = calibration.save(workbench.folder, name)
    if isinstance(fitted, ReadoutFit):
        plot_calibration(calibration, path.with_suffix(".png"))
    return calibration


def export_lists(lists: CalibrationLists, path: Path) -> None:
    """Write all lists as safetensors, to fit something else to them.

    Of each kind (`fitted`, `made`, `reordered`, `asked`) there are `KIND/list_lengths` (lists,),
    `KIND/retriever` (members,), `KIND/states/STATE` (members, dim) and, if there are any,
    `KIND/targets/TARGET` and `KIND/relevance` (members,). The metadata holds JSON under `KIND`: `queries`
    with id, text, corpus and source, and `pages` with the id of each member.
    """
    from safetensors.numpy import save as serialize

    tensors: dict[str, Any] = {}
    metadata = {"format": "ridgerank-lists-1"}
    kinds = {"fitted": lists.fitted, "made": lists.made, "reordered": lists.reordered, "asked": lists.asked}
    for kind, each in kinds.items():
        if each is None:
            continue
        tensors |= {f"{kind}/list_lengths": each.lists.lengths, f"{kind}/retriever": each.retriever}
        tensors |= {f"{kind}/states/{state}": values for state, values in each.states.items()}
        tensors |= {f"{kind}/targets/{target}": values for target, values in each.targets.items()}
        if each.relevance is not None:
            tensors[f"{kind}/relevance"] = each.relevance
        queries = [[query.query_id, query.text, query.corpus, query.source] for query in each.queries]
        metadata[kind] = json.dumps({"queries": queries, "pages": each.page_ids}, ensure_ascii=False)
    with replace_file(path) as scratch:
        scratch.write_bytes(serialize(tensors, metadata))


def _read_relevance(store: PageStore, qrels: Qrels, lists: CandidateLists) -> Floats:
    """(members,) graded relevance; a page without a judgement, or judged below 0, is not relevant."""
    names = store.lookup_many(page for query in lists for page in qrels.get(query.query_id, {}))
    judged = {
        query.query_id: {names.get(page): grade for page, grade in qrels.get(query.query_id, {}).items()}
        for query in lists
    }
    if not any(judged.values()):
        raise CalibrationError(
            "the judgements name none of the queries; expected qrels with the query ids of the queries given"
        )
    members = ((judged[query.query_id], each.page_id) for query, pages in lists.items() for each in pages)
    return np.array([max(grades.get(page, 0), 0) for grades, page in members], dtype=np.float64)


def _describe_questions(lists: CalibrationLists) -> str:
    kinds = (
        Counter(query.query_id.partition("-")[0] for query in lists.fitted.queries) if lists.fitted else {}
    )
    return f"cut from the pages' text: {', '.join(f'{count} {kind}s' for kind, count in kinds.items())}"


def _diagnose(
    lists: CalibrationLists, fits: Fits, fitted: ReadoutFit, weighed: Weighed, asked: str, incumbent: float
) -> Diagnostics:
    assert lists.fitted is not None  # a readout was fitted to them
    data, penalty = fitted.data, fitted.penalty
    agreement, interval = mean_interval(fitted.agreements())
    relevance = {reading: weighed.relevance.get(reading, math.nan) for reading in fits}
    options = tuple(
        ReadoutOption(*reading, math.nan, relevance[reading], str(each))
        if isinstance(each, CalibrationError)
        else ReadoutOption(*reading, float(each.agreements().mean()), relevance[reading], "")
        for reading, each in fits.items()
    )
    return Diagnostics(
        queries_from=asked,
        incumbent=incumbent,
        queries=len(lists.fitted.queries),
        lists=len(data.lists),
        candidates=int(lists.fitted.lists.lengths.max()),
        pairs=data.lists.members,
        penalties=tuple(penalty.penalties.tolist()),
        errors={
            fold: tuple((errors / fitted.validation_squares[fold]).tolist())
            for fold, errors in penalty.errors.items()
        },
        chosen=dict(penalty.chosen),
        penalty_at_edge=penalty.at_edge,
        agreements=tuple(fitted.agreements().tolist()),
        agreement=agreement,
        agreement_interval=interval,
        reason=weighed.reason,
        options=options,
        readout_spread=float(standard_deviations(fitted.held_out_scores, data.lists).mean()),
        teacher=lists.teacher,
    )
