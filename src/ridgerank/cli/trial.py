"""`ridgerank trial`: is reranking worth it on one's own documents."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np
import typer

from ridgerank.cli import _options
from ridgerank.cli._console import Bar, echo, format_duration
from ridgerank.cli.calibrate import calibration_progress
from ridgerank.cli.evaluate import Change, format_changes
from ridgerank.cli.index import (
    MEASURED_PAGES,
    IndexSettings,
    is_downloaded,
    measure_pages,
    require_documents,
    resolve_settings,
)
from ridgerank.documents.render import PageRef, list_pages
from ridgerank.errors import ExtraMissing, ScoreError, StoreError
from ridgerank.fusion.standardize import fuse_scores
from ridgerank.ragged import Ragged
from ridgerank.records import Candidate, Page, Query, State, Target, to_json
from ridgerank.trec import Qrels, Run, read_qrels, read_queries, read_run

if TYPE_CHECKING:
    from ridgerank.backbones.base import Backbone
    from ridgerank.calibration.calibrate import Workbench
    from ridgerank.calibration.fit import QueryLists
    from ridgerank.calibration.weight import Scorer
    from ridgerank.retrievers.base import Retriever
    from ridgerank.store.page_store import PageStore

CANDIDATES, MEASURES = 20, ("nDCG@5", "R@5", "R@20")
LEAST_QUESTIONS = 16
"""Fewer say nothing; a trial that has no time for their candidates is refused."""
DENSE = "BAAI/bge-small-en-v1.5"
_NEW_CANDIDATES = 10
"""Pages that one more question asks to be encoded, about."""
_SHOWN = 3
FULL_QUESTIONS = 8
"""Questions on which the readout is compared with the full model."""


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """What a trial asks."""

    queries: list[Query]
    qrels: Qrels
    """Query id → names of pages → grades."""
    made: bool
    """Whether the judged ones were made from the pages; those that somebody asked are then only shown."""


class Search(NamedTuple):
    """The candidates of one retriever, and how many retrievers it joins."""

    name: str
    found: Mapping[Query, Sequence[Candidate]]
    members: int


class ChosenReadout(NamedTuple):
    """A readout that never saw the trial's questions; `blind` says why its weight is 0, if it is."""

    target: Target
    state: State
    score: "Scorer"
    blind: str
    source: str


def trial_command(
    store: _options.Store,
    paths: Annotated[
        list[Path] | None, typer.Argument(help="PDFs, images, folders of both; none if the store is there.")
    ] = None,
    questions: Annotated[
        Path | None, typer.Option(help="Your questions: JSON lines (query_id, text) or plain lines.")
    ] = None,
    qrels: Annotated[Path | None, typer.Option(help="Judgements of these questions, TREC.")] = None,
    run: Annotated[
        Path | None, _options.retriever(help="Your own search's results for the questions, a TREC run.")
    ] = None,
    dense: Annotated[
        str,
        _options.retriever(help=f"Text embedder to join with BM25. [default: {DENSE} if it is downloaded]"),
    ] = "",
    minutes: Annotated[float, typer.Option(min=0.1, help="Time for encoding pages.")] = 10.0,
    backbone: Annotated[
        str | None, _options.model(help="Model. [default: the store's own]", envvar="RIDGERANK_BACKBONE")
    ] = None,
    device: _options.Device = None,
    dtype: _options.Dtype = None,
    as_json: _options.AsJson = False,
) -> None:
    """Search all pages, rerank a sample of questions, and say whether it is worth it.

    Only the candidates of the questions are encoded, as far as the time goes. They stay in the store, and
    `ridgerank index` continues from there.

    Without --questions, judgements given in the browser are used, else questions made from the pages.

    Example: `ridgerank trial reports/ --store pages --backbone HuggingFaceTB/SmolLM2-135M-Instruct`
    """
    from ridgerank.backbones.model_settings import ModelSettings, absolute_name
    from ridgerank.indexing.index import encode_pending, index_documents
    from ridgerank.store.page_store import PageStore

    given = [] if questions is None else read_queries(questions)
    judgements = {} if qrels is None else read_qrels(qrels)
    if questions is None and (qrels is not None or run is not None):
        raise typer.BadParameter("name the file of the questions", param_hint="--questions")
    settings = resolve_settings(store, ModelSettings(absolute_name(backbone or ""), device, dtype))
    if paths:
        require_documents(paths)
    elif settings.stored is None:
        raise StoreError(f"no page store at {store}; give the documents, too")
    model = settings.load_model(store)
    if paths:
        if settings.stored is None:
            _refuse_slow_model(paths, settings, model, minutes)
        echo("storing the text of every page")
        index_documents(paths, store, model, only=())
    scans = _read_scans(paths, store, model, most=int(minutes)) if paths else 0
    start = time.perf_counter()
    with PageStore.open(store) as pages:
        asked = _read_questions(pages, given, judgements)
        searches = _search(pages, asked, run, dense)
        order = Random(0).sample(asked.queries, len(asked.queries))
        wanted = {each.page_id: 0 for query in order for each in _candidates(query, searches)}
        pending = pages.pending() & wanted.keys()
    encoded, seconds = 0, 0.0
    if pending:
        half = 30 * minutes - (time.perf_counter() - start)  # the other half is for the readout
        with Bar() as bar:
            bar.start("encoding candidates", len(pending))
            encoded, seconds = encode_pending(store, model, wanted, seconds=half, progress=bar.advance)
    with PageStore.open(store) as pages:
        left = pages.pending()
        kept = {
            query: found
            for query in order
            if (found := _candidates(query, searches)) and left.isdisjoint(page.page_id for page in found)
        }
        if len(kept) < LEAST_QUESTIONS:
            raise ScoreError(
                f"{len(kept)} of {len(order)} questions have all their candidates encoded, expected at least "
                f"{LEAST_QUESTIONS}; ask more questions, or give more --minutes: what was encoded is kept"
            )
        facts = _measure(pages, model, asked, searches, kept, start + 60 * minutes)
        blank = sum(not text.strip() for text in pages.texts().values())
    facts["pool"] = f"{len(pages)} pages searched, {len(pages) - len(left)} of them encoded"
    facts["pool"] += f", {scans} read by OCR" if scans else ""
    if blank:
        facts["pool"] += f", {blank} without text, which are not found"
        sentence = facts["verdict"].sentence.removesuffix(".")
        of_all = f"{len(pages) - blank} of {len(pages)} pages have text{', some by OCR' if scans else ''}"
        facts["verdict"] = replace(facts["verdict"], sentence=f"{sentence} ({of_all}).")
    facts["encode_ms"] = 1000 * seconds / encoded if encoded else None
    if as_json:
        table = [
            {"name": name, "before": before.means(), "after": after.means(), "difference": difference}
            for name, before, after, difference in facts["changes"]
        ]
        typer.echo(json.dumps(to_json({**facts, "changes": table}), ensure_ascii=False))
    else:
        _print(facts)


def _refuse_slow_model(paths: list[Path], settings: IndexSettings, model: "Backbone", minutes: float) -> None:
    """Refuse what would take longer than there is time for, before anything is stored."""
    from ridgerank.calibration.calibrate import READ_PAGES
    from ridgerank.calibration.readout_file import shipped_for

    listed = (ref for ref in list_pages(paths, processes=1) if isinstance(ref, PageRef))
    refs = list(islice(listed, LEAST_QUESTIONS * _NEW_CANDIDATES))
    _, seconds, _ = measure_pages(refs[:MEASURED_PAGES], settings, model)
    geometry = model.geometry
    setting = settings.storage(layers=geometry.layers, reads_text=model.reads_text)
    full = geometry.layers / setting.exit_layer * min(len(refs), READ_PAGES)
    shipped = shipped_for(model.lineage(setting), geometry.width) is not None
    needed = (seconds or 0.0) * (len(refs) + (0 if shipped else full))
    if needed > 60 * minutes:
        raise ScoreError(
            f"a trial with {model.name} takes about {format_duration(needed)} on this machine "
            f"({seconds:.1f} s a page), expected at most {minutes:g} min; give --minutes "
            f"{int(needed / 60) + 1}, or a smaller model"
        )


def _read_scans(paths: list[Path], store: str, model: "Backbone", *, most: int) -> int:
    """Read a sample of the pages without text by OCR, which takes seconds a page; returns how many."""
    from ridgerank.atomic import cache_folder
    from ridgerank.documents.ocr import Recognizer, has_little_text
    from ridgerank.indexing.index import index_documents
    from ridgerank.store.page_store import PageStore

    with PageStore.open(store) as pages:
        texts = pages.texts()
        blank = sorted(page_id for page_id in pages.pending() if has_little_text(texts[page_id]))
    sample = Random(0).sample(blank, min(most, len(blank)))
    if not sample:
        return 0
    try:
        recognizer = Recognizer(cache=cache_folder("ocr"))
    except ExtraMissing as error:
        echo(f"{len(blank)} pages have no text: {error}")
        return 0
    echo(f"reading {len(sample)} of {len(blank)} pages without text off their image")
    return index_documents(paths, store, model, only=sample, recognizer=recognizer).added


def _read_questions(pages: "PageStore", given: list[Query], judgements: Qrels) -> Asked:
    """Questions of the file, else those judged in the browser, else made ones; pages by their reference."""
    from ridgerank.calibration.queries import QUERIES, cut_questions
    from ridgerank.store.judgements import Judgements
    from ridgerank.store.lance_dataset import local_root

    if not given and local_root(pages.uri) is not None:
        grades = Judgements(pages.uri).grades()
        given = [Query(f"judged-{number}", text) for number, text in enumerate(grades)]
        judgements = {query.query_id: grades[query.text] for query in given}
    names = pages.lookup_many(page for judged in judgements.values() for page in judged)
    known = dict(zip(names, pages.references(list(names.values())), strict=True))
    qrels = {
        query: {known.get(page, page): grade for page, grade in judged.items()}
        for query, judged in judgements.items()
        if any(grade > 0 for grade in judged.values())
    }
    if judged_queries := [query for query in given if query.query_id in qrels]:
        return Asked(judged_queries, qrels, made=False)
    made = cut_questions(pages.texts(), QUERIES)
    sources = pages.references([query.source for query in made])
    return Asked(
        [*given, *made],
        {query.query_id: {name: 1} for query, name in zip(made, sources, strict=True)},
        made=True,
    )


def _search(pages: "PageStore", asked: Asked, run: Path | None, dense: str) -> list[Search]:
    """The candidates of every retriever there is; the last is the one the verdict is about."""
    from importlib.util import find_spec

    from ridgerank.calibration.calibrate import find_candidates
    from ridgerank.retrievers.base import GivenCandidates
    from ridgerank.retrievers.load import load_retriever

    retrievers: list[Retriever] = [load_retriever("bm25", pages)]
    if dense or (find_spec("sentence_transformers") is not None and is_downloaded(DENSE, None)):
        retrievers.append(load_retriever(f"bm25+dense:{dense or DENSE}", pages))
    else:
        echo(f"to join dense vectors with BM25: --dense {DENSE}, which is then downloaded")
    if run is not None:
        given = [query for query in asked.queries if not query.source]
        retrievers.append(GivenCandidates(read_run(run), given, resolve=pages.find))
    searches = []
    for each in retrievers:
        queries = [query for query in asked.queries if each.answers(query.text)]
        if any(query.query_id in asked.qrels for query in queries):
            searches.append(Search(each.name, find_candidates(each, queries, CANDIDATES), each.members))
        else:
            echo(f"{each.name} is not compared: none of its questions is judged (--qrels)")
    return searches


def _candidates(query: Query, searches: list[Search]) -> list[Candidate]:
    """What any retriever finds, each page once."""
    found = {each.page_id: each for search in searches for each in search.found.get(query, [])}
    return list(found.values())


def _measure(
    pages: "PageStore",
    model: "Backbone",
    asked: Asked,
    searches: list[Search],
    kept: Mapping[Query, list[Candidate]],
    end: float,
) -> dict[str, Any]:
    """Score the questions, compare every retriever with and without, and reach a verdict before `end`."""
    from ridgerank.calibration.calibrate import StatePasses, open_workbench
    from ridgerank.evaluation.metrics import (
        compare_evaluations,
        evaluate,
        group_by_document,
        reach_verdict,
        widen,
    )

    with open_workbench(pages, backbone=model, retriever="bm25") as bench, calibration_progress() as progress:
        readout, agreement = _find_readout(bench, progress)
        start = time.perf_counter()
        lists = StatePasses(bench.shallow, (readout.state,), progress, len(kept), None).lists(kept)
        assert lists is not None  # there are questions, each with candidates
        query_ms = 1000 * (time.perf_counter() - start) * CANDIDATES / len(lists.page_ids)
        judged_or_fitted = not asked.made or agreement is not None
        full_ms, agreed = _run_full_passes(bench, lists, readout, 0.0 if judged_or_fitted else end)
    owners = [lists.queries[number].query_id for number in lists.lists.list_numbers().tolist()]
    members = zip(owners, lists.page_ids, readout.score(lists).tolist(), strict=True)
    scores = {(query, page): score for query, page, score in members}
    names = dict(zip(lists.page_ids, pages.references(lists.page_ids), strict=True))
    changes: list[Change] = []
    for search in searches:
        weight = 0.0 if readout.blind else 1.0 / (search.members + 1)
        orders = {
            query: _reorder(search.found[query], query.query_id, scores, names, weight)
            for query in kept
            if query in search.found
        }
        qrels = {
            query.query_id: asked.qrels[query.query_id] for query in orders if query.query_id in asked.qrels
        }
        before, after = (
            evaluate(
                Run.of_dict({query.query_id: each[side] for query, each in orders.items()}), qrels, MEASURES
            )
            for side in (0, 1)
        )
        [difference, *_] = compare_evaluations(before, after, groups=group_by_document(qrels))
        changes.append((search.name, before, after, widen(difference)))
    ranks = [
        (-before[page], -after[page])
        for query, (before, after) in orders.items()
        for page in asked.qrels.get(query.query_id, ())
        if asked.made and page in before
    ]
    return {
        "known_item_rank": np.mean(ranks, axis=0).tolist() if ranks else None,
        "verdict": reach_verdict(changes[-1][3], questions=len(qrels), made=asked.made, blind=readout.blind),
        "changes": changes,
        "moved": find_moves(orders, asked.qrels, {pages.reference(p): t for p, t in pages.texts().items()}),
        "readout": readout.source,
        "agreement": agreed if agreement is None else agreement,
        "page_bytes": float(np.mean([each.nbytes for each in pages.catalog.entries(list(names))])),
        "query_ms": query_ms,
        "full_ms": full_ms,
    }


def _reorder(
    found: Sequence[Candidate],
    query: str,
    scores: "Mapping[tuple[str, str], float]",
    names: "Mapping[str, str]",
    weight: float,
) -> tuple[dict[str, float], dict[str, float]]:
    """Names of pages → minus their rank, before and after; equal scores keep the retriever's order."""
    readout = np.array([scores[query, each.page_id] for each in found])
    lists = Ragged.of_lengths([len(found)])
    fused = fuse_scores(np.array([each.score for each in found]), readout, weight, lists)
    pages = [names[each.page_id] for each in found]
    order = np.argsort(-fused, kind="stable").tolist() if weight else range(len(pages))
    return (
        {page: -1.0 - rank for rank, page in enumerate(pages)},
        {pages[row]: -1.0 - rank for rank, row in enumerate(order)},
    )


def _find_readout(
    bench: "Workbench", progress: "Callable[[str, int, int], None]"
) -> tuple[ChosenReadout, float | None]:
    """The shipped readout, else one fitted here, where each document's questions get one without it.

    Also the held-out agreement with the full model, if one was fitted.
    """
    from ridgerank.calibration.calibrate import make_lists, scorers
    from ridgerank.calibration.fit import ReadoutFit, fit
    from ridgerank.calibration.readout_file import shipped_for
    from ridgerank.calibration.weight import weigh

    model, store = bench.shallow.backbone, bench.shallow.store
    shipped = shipped_for(store.lineage, model.geometry.width)
    file = shipped[1] if shipped is not None and shipped[1].check(model, store.lineage).accepted else None
    lists = make_lists(bench, readout=file, progress=progress)
    fits = {} if lists.fitted is None else fit(lists.fitted, lists.documents)
    known = scorers(fits, lists, file)
    weighed = weigh(lists, known, keep_paper=bench.keeps_paper)
    fitted = fits.get(weighed.reading)
    source = (
        f"shipped ({shipped[0]})" if shipped is not None and file is not None else "fitted to these pages"
    )
    chosen = ChosenReadout(*weighed.reading, known[weighed.reading], weighed.weight.cause, source)
    return chosen, float(fitted.agreements().mean()) if isinstance(fitted, ReadoutFit) else None


def _run_full_passes(
    bench: "Workbench", lists: "QueryLists", readout: ChosenReadout, end: float
) -> tuple[float | None, float | None]:
    """Milliseconds that the full model takes for a question's candidates, and how the readout agrees with it.

    Of at most eight questions, as far as the time goes; without time for one, two pages are read. None if
    pages cannot be read.
    """
    from ridgerank.backbones.decoder import PrefixBatch
    from ridgerank.store.sidecar import locate_pages, render_locations

    model, scores = bench.shallow.backbone, readout.score(lists)
    seconds, read, agreements = 0.0, 0, []
    for number, query in enumerate(lists.queries[:FULL_QUESTIONS]):
        first, last = lists.lists.offsets[number : number + 2].tolist()
        known = dict(zip(lists.page_ids[first:last], scores[first:last].tolist(), strict=True))
        pairs: list[tuple[float, float]] = []
        located = locate_pages(bench.shallow.store, list(known))
        for page in render_locations(located, max_pixels=model.page_budget):
            if isinstance(page, Page):
                start = time.perf_counter()
                prefixes = model.encode([model.content(page)], exit_layer=model.geometry.layers)
                found = model.targets([query.text], PrefixBatch(prefixes), targets=(readout.target,))
                pairs.append((known[page.page_id], found[readout.target].item()))
                seconds, read = seconds + time.perf_counter() - start, read + 1
            if read >= 2 and time.perf_counter() > end:
                break
        else:
            if pairs and np.ptp(pairs, axis=0).all():  # scores that are all equal correlate with nothing
                agreements.append(float(np.corrcoef(np.array(pairs).T)[0, 1]))
            continue
        break
    agreement = float(np.mean(agreements)) if agreements else None
    return (1000 * seconds * CANDIDATES / read if read else None), agreement


def find_moves(
    orders: Mapping[Query, tuple[Mapping[str, float], Mapping[str, float]]],
    qrels: Qrels,
    texts: "Mapping[str, str]",
) -> list[dict[str, Any]]:
    """The questions whose relevant page moved most, up or down; without judgements, their new first page."""
    moves: list[tuple[int, dict[str, Any]]] = []
    for query, (before, after) in orders.items():
        judged = qrels.get(query.query_id)
        relevant = [page for page in after if judged is None or judged.get(page, 0) > 0]
        if relevant and before[relevant[0]] != after[relevant[0]]:
            page, words = relevant[0], set(query.text.casefold().split())
            lines = [" ".join(line.split()) for line in texts[page].splitlines()]
            line = max(lines, key=lambda line: len(words & set(line.casefold().split())), default="")
            ranks = {"before": round(-before[page]), "after": round(-after[page])}
            move = {"question": query.text, "page": page, **ranks, "line": line[:100]}
            moves.append((abs(ranks["before"] - ranks["after"]), move))
    return [move for _, move in sorted(moves, key=lambda each: -each[0])[:_SHOWN]]


def _print(facts: dict[str, Any]) -> None:
    """One screen, the verdict last."""
    verdict = facts["verdict"]
    for move in facts["moved"]:
        typer.echo(
            f"{move['question']}\n  {move['page']}: {move['before']} → {move['after']}  {move['line']}"
        )
    typer.echo(format_changes(facts["changes"]))
    typer.echo(f"{verdict.questions} questions of {verdict.documents} documents; {facts['pool']}")
    if facts["known_item_rank"]:
        first, then = facts["known_item_rank"]
        typer.echo(f"the page a question was made from, if it is found: rank {first:.1f} → {then:.1f}")
    agreement = facts["agreement"] and f", which agrees with the full model at {facts['agreement']:.2f}"
    typer.echo(f"readout: {facts['readout']}{agreement or ''}")
    encoding = f"{facts['encode_ms']:.0f} ms and " if facts["encode_ms"] else ""
    typer.echo(f"a page takes {encoding}{facts['page_bytes'] / 1e6:.2f} MB")
    query_ms, full_ms = facts["query_ms"], facts["full_ms"]
    full = f", by full passes {full_ms:.0f} ms: {full_ms / query_ms:.0f} times faster here" if full_ms else ""
    typer.echo(f"{CANDIDATES} pages in {query_ms:.0f} ms{full}")
    typer.echo(f"\n{verdict.sentence}")
