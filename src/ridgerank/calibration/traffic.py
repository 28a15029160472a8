"""The traffic that a server logged, as queries and candidates to calibrate on. No page text is in it."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ridgerank.errors import CalibrationError, RunFileError
from ridgerank.records import Query
from ridgerank.retrievers.given_candidates import GivenCandidates

LEAST_CANDIDATES = 5
"""A shorter list says next to nothing about a correlation."""


@dataclass(frozen=True, slots=True, eq=False)
class Traffic:
    """What was searched for, and what the retriever found."""

    queries: tuple[Query, ...]
    candidates: GivenCandidates


def read_traffic(path: Path, *, retriever: str, page_ids: Sequence[str], count: int) -> Traffic:
    """The last `count` different queries of a log whose candidates the retriever of this name found.

    Pages that the store no longer has are left out, and lines that were cut short or hold scores that are no
    numbers.
    """
    stored = set(page_ids)
    lists: dict[str, dict[str, float]] = {}
    retrievers: set[str] = set()
    for line in _read_lines(path):
        try:
            row = json.loads(line)
            query, name = str(row["query"]), str(row["retriever"])
            scores = dict(zip(row["pages"], map(float, row["retriever_scores"]), strict=True))
            if not query.strip() or not all(map(math.isfinite, scores.values())):
                continue
        except (ValueError, KeyError, TypeError):
            continue
        retrievers.add(name)
        scores = {page: score for page, score in scores.items() if page in stored}
        if name == retriever and len(scores) >= LEAST_CANDIDATES:
            lists.pop(query, None)  # the newest ranking of a query counts, and counts as new
            lists[query] = scores
    if not lists:
        raise CalibrationError(
            f"{path}: no rankings of {LEAST_CANDIDATES} or more pages of this store by {retriever!r}"
            f"{f', only by {sorted(retrievers)}' if retrievers - {retriever} else ''}; log with "
            "`ridgerank serve --traffic-log`"
        )
    newest = dict(list(lists.items())[-count:])
    queries = tuple(Query(f"traffic-{number}", text) for number, text in enumerate(newest, start=1))
    scored = ((text, page, score) for text, pages in newest.items() for page, score in pages.items())
    return Traffic(queries, GivenCandidates(scored, name=retriever))


def _read_lines(path: Path) -> list[str]:
    """The lines of a log and of the file it was moved to when it was full, oldest first."""
    older = path.with_name(f"{path.name}.1")
    lines: list[str] = []
    for part in (older, path):
        if part.exists() or part == path:
            try:
                lines += part.read_text(encoding="utf-8", errors="replace").split("\n")
            except OSError as error:
                raise RunFileError(f"{part}: {error.strerror or error}; wanted a traffic log") from error
    return lines
