"""Validation of queries, and files of queries, one per line. Knows no model and no corpus."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ridgerank.errors import QueryError
from ridgerank.records import Query

MAX_CHARACTERS = 2000
"""A longer query is refused: it runs with all candidates in one pass, and memory grows with its square."""


def validate_query(text: str) -> str:
    """The query without white space around it; an empty or too long query is refused."""
    query = text.strip()
    if not query:
        raise QueryError("an empty query; wanted some words")
    if len(query) > MAX_CHARACTERS:
        raise QueryError(
            f"a query of {len(query):,} characters, wanted at most {MAX_CHARACTERS:,}; "
            "ask for what matters in it, or split it"
        )
    return query


def read_queries(path: Path) -> list[Query]:
    """Read JSON lines (`{"query_id": …, "text": …}`, optionally `corpus`) or plain text, one query per line.

    Plain lines are numbered from 1, as `line-1`. Blank lines are skipped; an id that occurs twice is refused.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise QueryError(f"{path}: not UTF-8 text ({error.reason} at byte {error.start})") from error
    except OSError as error:
        raise QueryError(f"{path}: {error.strerror or error}; wanted a file of queries") from error
    queries = [_parse_line(line, path, number) for number, line in enumerate(lines, start=1) if line.strip()]
    if not queries:
        raise QueryError(f"{path}: no queries, wanted at least one line")
    return require_distinct_ids(queries, source=str(path))


def require_distinct_ids(queries: Iterable[Query], *, source: str) -> list[Query]:
    """The queries as a list; an id that two queries share is refused."""
    by_id: dict[str, Query] = {}
    for query in queries:
        if query.query_id in by_id:
            raise QueryError(f"{source}: two queries have the id {query.query_id!r}; give each its own")
        by_id[query.query_id] = query
    return list(by_id.values())


def _parse_line(line: str, path: Path, number: int) -> Query:
    location = f"{path}, line {number}"
    try:
        if not line.lstrip().startswith("{"):
            return Query(f"line-{number}", validate_query(line))
        row: dict[str, Any] = json.loads(line)
        return Query(str(row["query_id"]), validate_query(str(row["text"])), str(row.get("corpus", "")))
    except json.JSONDecodeError as error:
        raise QueryError(f"{location}: not JSON ({error.msg}); wanted one object a line") from error
    except KeyError as error:
        raise QueryError(f"{location}: no {error.args[0]!r}; wanted query_id and text") from error
    except QueryError as error:
        raise QueryError(f"{location}: {error}") from error
