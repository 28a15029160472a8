"""`ridgerank rank`: a whole run, reranked."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from ridgerank.cli.options import (
    BackboneName,
    CacheDir,
    CacheSize,
    Device,
    Dtype,
    MinScore,
    ReadoutName,
    Store,
    parse_size,
    require_tag,
)

if TYPE_CHECKING:
    from ridgerank.ranking.reranker import Reranker
    from ridgerank.records import Query
    from ridgerank.runs.run import Run

Candidates = list[tuple[str, float]]


def rank_command(
    store: Store,
    queries: Annotated[
        Path, typer.Option(help="Queries: JSON lines (query_id, text) or plain lines.", show_default=False)
    ],
    run: Annotated[Path, typer.Option(help="Your retriever's candidates, TREC.", show_default=False)],
    output: Annotated[
        Path | None,
        typer.Option(help="Write the run here, not to stdout; what it holds already is not done again."),
    ] = None,
    encode_missing: Annotated[
        list[Path] | None,
        typer.Option(help="Files or folders of candidates that are not stored: encoded on the fly."),
    ] = None,
    min_score: MinScore = None,
    readout: ReadoutName = "default",
    tag: Annotated[str, typer.Option(help="Name of the run, its last column.")] = "ridgerank",
    cache_dir: CacheDir = None,
    cache_size: CacheSize = "20GB",
    backbone: BackboneName = None,
    device: Device = None,
    dtype: Dtype = None,
) -> None:
    """Rerank the candidates of many queries; pages by id or reference (report.pdf#3), scores are fused.

    With --output, an interrupted run goes on where it stopped.

    Example: `ridgerank rank --store pages --queries queries.jsonl --run colpali.trec > reranked.trec`
    """
    from ridgerank.runs.queries import read_queries
    from ridgerank.runs.trec import read_run

    require_tag(tag)
    requests = _join_candidates(read_queries(queries), read_run(run))
    cache_disk_bytes = parse_size(cache_size)
    from ridgerank.cli.progress_bars import Bar
    from ridgerank.ranking.reranker_options import RerankerOptions

    reranker = RerankerOptions(
        readout=readout,
        backbone=backbone,
        device=device,
        dtype=dtype,
        cache_dir=cache_dir,
        cache_disk_bytes=cache_disk_bytes,
    ).open(store)
    try:
        with reranker, Bar() as bar:
            ranker = _QueryRanker(reranker, encode_missing, tag, min_score)
            done = 0 if output is None else _resume(output, requests, ranker)
            if done:
                bar.say(f"{done} of {len(requests)} queries were done before")
            bar.start("ranking", len(requests))
            bar.advance(done)
            for query, candidates in requests[done:]:
                _write(ranker.block(query, candidates), output)
                bar.advance()
    except KeyboardInterrupt:
        again = "run it again to go on" if output is not None else "with --output it could go on"
        typer.echo(f"\ninterrupted; {again}", err=True)
        raise typer.Exit(130) from None
    typer.echo(f"{len(requests)} queries ranked at weight {reranker.calibration.weight.weight:.3f}", err=True)


class _QueryRanker:
    """Ranks the candidates of a query and formats them as lines of a run."""

    def __init__(
        self, reranker: "Reranker", encode_missing: list[Path] | None, tag: str, min_score: float | None
    ) -> None:
        self._reranker = reranker
        self._encode_missing = encode_missing
        self._tag = tag
        self.min_score = min_score

    def block(self, query: "Query", candidates: Candidates) -> str:
        """The lines of one query, pages named as the run names them; none where no page answers it."""
        ranking = self._reranker.rank(
            query.text, candidates, encode_missing=self._encode_missing, min_score=self.min_score
        )
        page_ids = self._reranker.store.lookup_many(name for name, _ in candidates)
        run_names: dict[str, str] = {}  # page id → its name in the run, the first of several
        for name, _ in candidates:
            run_names.setdefault(page_ids.get(name, name), name)
        return "".join(
            f"{query.query_id} Q0 {run_names.get(page.page_id, page.reference)} {page.rank} "
            f"{page.fused_score!r} {self._tag}\n"
            for page in ranking.pages
        )


def _join_candidates(queries: "list[Query]", run: "Run") -> "list[tuple[Query, Candidates]]":
    """The queries that have candidates, in the order of their file."""
    from ridgerank.errors import QueryError

    scored = run.to_dict()
    known = {query.query_id for query in queries}
    unknown = [query_id for query_id in scored if query_id not in known]
    if unknown:
        raise QueryError(
            f"{len(unknown)} queries of the run have no text, {unknown[0]!r} among them; wanted them all in "
            "--queries"
        )
    without_candidates = [query for query in queries if query.query_id not in scored]
    if without_candidates:
        typer.echo(
            f"note: {len(without_candidates)} queries have no candidates in the run; left out", err=True
        )
    return [(query, list(scored[query.query_id].items())) for query in queries if query.query_id in scored]


def _resume(output: Path, requests: "list[tuple[Query, Candidates]]", ranker: _QueryRanker) -> int:
    """Cut a query that an interruption left half written; how many queries the file holds already.

    The last whole query is ranked again and has to come out the same: a file made with another calibration,
    store or run is not continued.
    """
    from ridgerank.errors import RunFileError

    if not output.exists():
        return 0
    text = output.read_text(encoding="utf-8")
    lines = text[: text.rfind("\n") + 1].splitlines(keepends=True)
    owners = [line.split(maxsplit=1)[0] for line in lines if line.strip()]
    present = list(dict.fromkeys(owners))
    done = _count_done(present, [query.query_id for query, _ in requests], gaps=ranker.min_score is not None)
    if done is None:
        raise RunFileError(f"{output} holds another run's queries; remove it, or name another file")
    if not present:
        output.write_text("", encoding="utf-8")
        return 0
    last, candidates = requests[done - 1]
    repeated = ranker.block(last, candidates)
    tail = "".join(line for line, owner in zip(lines, owners, strict=True) if owner == last.query_id)
    if tail != repeated and not repeated.startswith(text[text.index(tail) :]):
        raise RunFileError(
            f"{output} was made with another store, calibration or run; remove it, or name another file"
        )
    completed = text[: len("".join(lines)) - len(tail)] + repeated
    if completed != text:
        output.write_text(completed, encoding="utf-8", newline="\n")
    return done


def _count_done(present: list[str], query_ids: list[str], *, gaps: bool) -> int | None:
    """How many queries were ranked when `present` have lines; None where these are another run's.

    With `gaps`, queries without a line before the last one that has some were ranked and had no answer.
    """
    if not present:
        return 0
    if not gaps:
        return len(present) if present == query_ids[: len(present)] else None
    if present[-1] not in query_ids:
        return None
    done = query_ids.index(present[-1]) + 1
    known = set(present)
    return done if [each for each in query_ids[:done] if each in known] == present else None


def _write(block: str, output: Path | None) -> None:
    if output is None:
        _put(sys.stdout, block)
        return
    with output.open("a", encoding="utf-8", newline="\n") as file:
        _put(file, block)


def _put(file: TextIO, block: str) -> None:
    file.write(block)
    file.flush()
