"""`ridgerank calibrate` on a calibration that exists: its weight alone."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from ridgerank.calibration.artifact import Calibration
    from ridgerank.records import Query, ScoredPages
    from ridgerank.store.page_store import PageStore
    from ridgerank.trec import Qrels


def reweigh_store(
    store: str, name: str, queries: "list[Query] | None", qrels: "Qrels | None"
) -> "tuple[Calibration, Calibration]":
    """Estimate the weight again and save it: the calibration before, and now.

    Judgements are those given in the browser and those of `qrels`; where both judge a page, the file counts.
    """
    from ridgerank.calibration.artifact import Calibration
    from ridgerank.calibration.weight import reweigh
    from ridgerank.serving.judging import kept_judgements
    from ridgerank.store.page_store import PageStore
    from ridgerank.store.sidecar import edit_calibrations

    start = time.perf_counter()
    with edit_calibrations(store) as folder, PageStore.open(store) as pages:
        before = Calibration.load(folder, name, lineage=pages.lineage)
        grades, known = kept_judgements(store, before)
        in_browser = len(grades)
        in_files = _read_grades(pages, queries or [], qrels or {})
        grades |= {text: grades.get(text, {}) | judged for text, judged in in_files.items()}
        own = set() if before.lists is None else {query.text for query in before.lists.queries}
        missing = [text for text in grades if text not in own and text not in known]
        known |= _search(store, name, missing, before.diagnostics.candidates)
        lists = None if before.lists is None else before.lists.with_grades(in_files)
        after = reweigh(replace(before, lists=lists), known, grades)
        _require_judgements(before, after, name)
        after.save(folder, name)
    kept = 0 if lists is None else len(lists.grades().keys() - grades.keys())
    typer.echo(
        f"{len(grades) + kept} judged queries, {in_browser} of them judged in the browser, {kept} in the "
        f"calibration; {len(missing)} had to be searched for; {time.perf_counter() - start:.1f} s",
        err=True,
    )
    return before, after


def _read_grades(store: "PageStore", queries: "list[Query]", qrels: "Qrels") -> dict[str, dict[str, int]]:
    """The text of each judged query → grades by page id; pages that the store lacks are left out."""
    grades: dict[str, dict[str, int]] = {}
    unknown: set[str] = set()
    for query in queries:
        judged = qrels.get(query.query_id, {})
        ids = store.lookup_many(judged)
        unknown |= judged.keys() - ids.keys()
        if ids:
            grades[query.text] = {page_id: judged[page] for page, page_id in ids.items()}
    if unknown:
        typer.echo(
            f"{len(unknown)} judged pages are not in the store, such as {min(unknown)}: left out", err=True
        )
    return grades


def _require_judgements(before: "Calibration", after: "Calibration", name: str) -> None:
    """Refuse to trade judgements that are not at hand for fewer; say so where others went."""
    from ridgerank.errors import CalibrationError

    count_before, count_after = (
        each.weight.queries_used if each.weight.is_judged else 0 for each in (before, after)
    )
    if count_after >= count_before:
        return
    change = f"the weight of {name} rests on {count_before} judged queries, {count_after} are known now"
    if before.lists is not None and before.lists.relevance is not None:
        typer.echo(f"{change}; give the others with --queries and --qrels to keep them", err=True)
        return
    raise CalibrationError(f"{change}; nothing was changed. Give them with --queries and --qrels")


def print_change(before: "Calibration", after: "Calibration") -> None:
    """Old against new, on stderr: what changed and by how much."""
    from rich.console import Console
    from rich.table import Table

    readers: dict[str, Callable[[Calibration], str]] = {
        "weight": lambda each: f"{each.weight.weight:.3f}",
        "95 % interval": lambda each: "{:.2f} to {:.2f}".format(*each.weight.weight_interval),
        "estimated": lambda each: each.weight.method,
        "c_b, c_s": lambda each: f"{each.weight.c_b:.2f}, {each.weight.c_s:.2f}",
        "ρ": lambda each: f"{each.weight.rho:.2f}",
        "held-out r": lambda each: f"{each.diagnostics.agreement:.2f}",
        "spread of the readout": lambda each: f"{each.diagnostics.readout_spread:.2f}",
        "queries": lambda each: f"{each.weight.queries_used}",
    }
    table = Table("", "before", "now")
    for title, read in readers.items():
        table.add_row(title, read(before), read(after))
    Console(stderr=True).print(table)


def _search(store: str, name: str, texts: list[str], candidates: int) -> "dict[str, ScoredPages]":
    """Candidates and scores of queries that are known to nobody: the model has to be loaded for these."""
    if not texts:
        return {}
    from ridgerank.records import ScoredPages
    from ridgerank.reranker.options import RerankerOptions

    with RerankerOptions(readout=name).open(store) as reranker:
        rankings = [reranker.search(text, k=candidates, top_k=candidates) for text in texts]
    return {ranking.query: ScoredPages.of_ranking(ranking.pages) for ranking in rankings}
