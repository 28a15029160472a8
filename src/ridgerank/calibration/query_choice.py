"""Which queries a readout is fitted to: those given, or else generated from the pages."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypeAlias

from ridgerank.calibration.executor import Executor
from ridgerank.calibration.ridge_fit import LEAST_LISTS
from ridgerank.calibration.synthetic_queries import QuerySet, queries_from_texts
from ridgerank.calibration.target_cache import TargetCache
from ridgerank.errors import CalibrationError
from ridgerank.records import Query
from ridgerank.store.page_store import PageStore

QUERIES = 32
"""Queries generated where none are given."""

QuerySource: TypeAlias = Literal["auto", "text", "model"]
"""What generates queries: the pages' text, the model, or the model only where the text gives too few."""


def choose_queries(
    queries: Sequence[Query] | None,
    executor: Executor,
    store: PageStore,
    cache: TargetCache,
    *,
    origin: str,
    source: QuerySource = "auto",
    count: int,
    documents: Sequence[Path],
) -> QuerySet:
    """The queries given, or else `count` generated ones; too few are refused."""
    if queries:
        query_set = QuerySet(unique_queries(queries), origin)
    else:
        query_set = _generate_queries(executor, store, cache, source, count, documents)
    if len(query_set.queries) < LEAST_LISTS:
        raise CalibrationError(
            f"{len(query_set.queries)} different queries ({query_set.origin}), wanted at least "
            f"{LEAST_LISTS}; give them in a file (--queries): no judgements are needed"
        )
    return query_set


def _generate_queries(
    executor: Executor,
    store: PageStore,
    cache: TargetCache,
    source: QuerySource,
    count: int,
    documents: Sequence[Path],
) -> QuerySet:
    if source != "model":
        query_set = queries_from_texts(store.texts(), count)
        if source == "text" or len(query_set.queries) >= LEAST_LISTS:
            return query_set
    return executor.write_queries(cache, count=count, documents=documents)


def unique_queries(queries: Sequence[Query]) -> tuple[Query, ...]:
    """Queries of differing text: of queries with the same text, the first."""
    by_text: dict[str, Query] = {}
    for query in queries:
        by_text.setdefault(query.text, query)
    return tuple(by_text.values())
