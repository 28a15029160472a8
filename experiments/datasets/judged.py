"""Queries that can be measured: those with at least one page that answers."""

from collections.abc import Iterable

from ridgerank.records import Query
from ridgerank.trec import Qrels


def keep_judged(queries: Iterable[Query], qrels: Qrels) -> tuple[tuple[Query, ...], Qrels, int]:
    """Queries with a page of positive grade, their judgements in the same order, and how many were left out.

    A query that no page answers scores 0 under every ranking, and its relevance cannot be standardized.
    """
    every = tuple(queries)
    kept = tuple(
        query for query in every if any(grade > 0 for grade in qrels.get(query.query_id, {}).values())
    )
    return kept, {query.query_id: dict(qrels[query.query_id]) for query in kept}, len(every) - len(kept)
