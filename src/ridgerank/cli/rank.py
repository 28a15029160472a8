"""`ridgerank rank`: a whole run, reranked."""

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, TextIO, TypeAlias

import typer

from ridgerank.atomic import is_special, replace_text_file, say_what_cannot_be_written
from ridgerank.cli import _options
from ridgerank.cli._console import Bar, announce_folder, echo, interruptible
from ridgerank.errors import QueryError, RunFileError
from ridgerank.records import Query
from ridgerank.trec import Run, read_queries, read_run, read_text

Candidates = list[tuple[str, float]]
Requests: TypeAlias = "list[tuple[Query, Candidates]]"


def rank_command(
    store: _options.Store,
    queries: Annotated[Path, typer.Option(help="Queries: JSON lines (query_id, text) or plain lines.")],
    run: Annotated[Path, typer.Option(help="Your retriever's candidates, TREC.")],
    output: Annotated[
        Path | None,
        _options.output(help="Write the run here, not to stdout; what it holds already is not done again."),
    ] = None,
    retriever: Annotated[
        str, typer.Option(help="Whose scores the run has: the calibrated weight is for one retriever.")
    ] = "run",
    document: _options.Documents = None,
    where: _options.Where = None,
    min_score: _options.MinScore = None,
    readout: _options.ReadoutName = "default",
    backbone: _options.BackboneName = None,
    device: _options.Device = None,
    dtype: _options.Dtype = None,
) -> None:
    """Rerank the candidates of many queries; pages by id or reference (report.pdf#3), scores are fused.

    With --output, an interrupted run continues where it stopped.

    Example: `ridgerank rank --store pages --queries queries.jsonl --run colpali.trec > reranked.trec`
    """
    requests = _join_candidates(read_queries(queries), read_run(run))
    from ridgerank.reranker.options import RerankerOptions
    from ridgerank.store.page_filter import PageFilter

    within = PageFilter.parse(document or [], where or [])
    options = RerankerOptions(readout=readout, backbone=backbone, device=device, dtype=dtype)
    reranker = options.open(store)
    again = "run it again to go on" if output is not None else "with --output it could go on"
    with interruptible(again), reranker, Bar() as bar:
        notes = Counter[str]()

        def rank(query: Query, candidates: Candidates) -> str:
            """The lines of a query, pages named as the run names them; none if none reaches `min_score`."""
            ranking = reranker.rank(
                query.text, candidates, retriever=retriever, min_score=min_score, within=within
            )
            notes.update(ranking.reasons)
            page_ids = reranker.store.lookup_many(name for name, _ in candidates)
            names: dict[str, str] = {}  # page id → its name in the run, the first of several
            for name, _ in candidates:
                names.setdefault(page_ids.get(name, name), name)
            return "".join(
                f"{query.query_id} Q0 {names.get(page.page_id, page.reference)} {page.rank} "
                f"{page.fused_score!r} ridgerank\n"
                for page in ranking.pages
            )

        done = 0 if output is None else _resume(output, requests, rank)
        if done:
            bar.echo(f"{done} of {len(requests)} queries were done before")
        bar.start("ranking", len(requests))
        bar.advance(done)
        with _open_output(output) as file:
            for query, candidates in requests[done:]:
                file.write(rank(query, candidates))
                file.flush()
                bar.advance()
    for note, count in notes.most_common(5):
        echo(f"note, for {count} of {len(requests)} queries: {note}")
    echo(f"{len(requests)} queries ranked at weight {reranker.calibration.weight.weight:.3f}")


def _join_candidates(queries: list[Query], run: Run) -> "Requests":
    """The queries that have candidates, in the order of their file."""
    scored = run.to_dict()
    known = {query.query_id for query in queries}
    unknown = [query_id for query_id in scored if query_id not in known]
    if unknown:
        raise QueryError(
            f"{len(unknown)} queries of the run have no text, {unknown[0]!r} among them; expected them all "
            "in --queries"
        )
    without_candidates = [query for query in queries if query.query_id not in scored]
    if without_candidates:
        echo(f"note: {len(without_candidates)} queries have no candidates in the run; left out")
    return [(query, list(scored[query.query_id].items())) for query in queries if query.query_id in scored]


def _resume(output: Path, requests: "Requests", rank: "Callable[[Query, Candidates], str]") -> int:
    """Cut a query that an interruption left half written; how many queries the file holds already.

    The last whole query is ranked again and has to come out the same: a file made with another calibration,
    store or run is not continued.
    """
    if is_special(output) or not output.exists():
        return 0
    text = read_text(output, "a run; remove it, or name another file")
    lines = text[: text.rfind("\n") + 1].splitlines(keepends=True)
    present = list(dict.fromkeys(line.partition(" ")[0] for line in lines))
    query_ids = [query.query_id for query, _ in requests]
    done = query_ids.index(present[-1]) + 1 if present and present[-1] in query_ids else 0
    # Without a line are queries of which no page reached `min_score`.
    if [query_id for query_id in query_ids[:done] if query_id in present] != present:
        raise RunFileError(f"{output} holds another run's queries; remove it, or name another file")
    kept = "".join(line for line in lines if line.partition(" ")[0] != present[-1])
    last = rank(*requests[done - 1]) if done else ""
    # After `kept` come the last query's lines or their start; after a whole query, the start of the next.
    continued = text[len(kept) :]
    if not last.startswith(continued):
        blocks = (rank(query, candidates) for query, candidates in requests[done:])
        if not (last + next(filter(None, blocks), "")).startswith(continued):
            raise RunFileError(
                f"{output} was made with another store, calibration or run; remove it, or name another file"
            )
    if kept + last != text:
        with replace_text_file(output) as file:
            file.write(kept + last)
    return done


@contextmanager
def _open_output(output: Path | None) -> Iterator[TextIO]:
    """The file to write to: stdout, the end of a file, or a pipe."""
    if output is None:
        yield sys.stdout
        return
    announce_folder(output)
    with say_what_cannot_be_written(output):
        output.parent.mkdir(parents=True, exist_ok=True)
        with output.open("a", encoding="utf-8", newline="\n") as file:
            yield file
