"""Files of queries, one per line. Knows no model and no corpus."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ridgerank.errors import QueryError
from ridgerank.records import Query, describe_json, validate_query


def read_queries(path: Path) -> list[Query]:
    """Read JSON lines (`{"query_id": …, "text": …}`, optionally `corpus`) or plain text, one query per line.

    Plain lines are numbered from 1, as `line-1`. Blank lines are skipped. A text that is no text, an id that
    is no word and an id that occurs twice are refused.
    """
    try:
        # Not `splitlines`: U+2028 and its like stand inside a query, they do not end it.
        lines = path.read_text(encoding="utf-8-sig").split("\n")
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
    try:
        if not line.lstrip().startswith("{"):
            return Query(f"line-{number}", validate_query(line))
        return _parse_row(parse_json(line))
    except QueryError as error:
        raise QueryError(f"{path}, line {number}: {error}") from error


def parse_json(text: str) -> Any:  # noqa: ANN401 (whatever JSON holds)
    """`json.loads`, where text that is no JSON, too deep or of numbers too long is a `QueryError`."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise QueryError(f"not JSON ({error.msg}); wanted one object per line") from error
    except RecursionError:
        raise QueryError("JSON that is nested too deep; wanted query_id and text") from None
    except ValueError as error:  # a number of thousands of digits
        raise QueryError(f"JSON that cannot be read ({error}); wanted query_id and text") from error


def _parse_row(row: Mapping[str, Any]) -> Query:
    for name in ("query_id", "text"):
        if name not in row:
            raise QueryError(f"no {name!r}; wanted query_id and text")
    query_id, text, corpus = row["query_id"], row["text"], row.get("corpus", "")
    if isinstance(query_id, int) and not isinstance(query_id, bool):
        query_id = str(query_id)
    if not isinstance(query_id, str):
        raise QueryError(f"a query_id that is {describe_json(query_id)}; wanted text or a whole number")
    if query_id.split() != [query_id] or not query_id.isprintable():
        raise QueryError(
            f"the query_id {query_id!r}, which a run cannot hold; wanted one word without blanks"
        )
    if not isinstance(text, str):
        raise QueryError(f"a text that is {describe_json(text)}; wanted text in quotes")
    if not isinstance(corpus, str):
        raise QueryError(f"a corpus that is {describe_json(corpus)}; wanted text")
    return Query(query_id, validate_query(text), corpus)
