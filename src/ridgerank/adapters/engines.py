"""Candidates out of the answers of search engines, one call each: `(page, score)` pairs for `Reranker.rank`.

An entry of an answer names its page in the field `page_id` (another may be given), or by a file and a number
as chunks do (`source` and `page_number`, …), or by its own id. Nothing here imports an engine's client.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ridgerank.adapters.matching import PAGE_KEY
from ridgerank.documents.chunk_pages import ChunkPages
from ridgerank.errors import ScoreError, StoreError
from ridgerank.store.page_store import PageStore

PageScores = list[tuple[str, float]]


def lancedb_candidates(
    rows: Iterable[Mapping[str, Any]], store: PageStore, *, page_key: str = PAGE_KEY, first_page: int = 1
) -> PageScores:
    """Candidates of `table.search(…).to_list()`: `_relevance_score`, `_score`, or minus `_distance`."""
    scored = []
    for row in rows:
        distance = row.get("_distance")
        score = row.get("_relevance_score", row.get("_score", None if distance is None else -distance))
        scored.append((_names(row, row.get("id"), page_key, first_page), score))
    return _candidates(scored, store, "LanceDB", "_relevance_score, _score or _distance")


def qdrant_candidates(
    response: Any,  # noqa: ANN401 (QueryResponse, or a list of ScoredPoint: the client is not imported)
    store: PageStore,
    *,
    page_key: str = PAGE_KEY,
    first_page: int = 1,
) -> PageScores:
    """Candidates of `client.query_points(…)`: each point's payload and score."""
    points: Sequence[Any] = getattr(response, "points", response)
    scored = [
        (_names(point.payload or {}, str(point.id), page_key, first_page), point.score) for point in points
    ]
    return _candidates(scored, store, "Qdrant", "score")


def elasticsearch_candidates(
    response: Mapping[str, Any], store: PageStore, *, page_key: str = PAGE_KEY, first_page: int = 1
) -> PageScores:
    """Candidates of a `_search` answer of Elasticsearch or OpenSearch: each hit's `_source` and `_score`."""
    hits = _inside(response, "hits", "hits")
    scored = [
        (_names(hit.get("_source") or {}, hit.get("_id"), page_key, first_page), hit.get("_score"))
        for hit in hits
    ]
    return _candidates(scored, store, "Elasticsearch", "_score: sort by it, or track it with track_scores")


def vespa_candidates(
    response: Mapping[str, Any], store: PageStore, *, page_key: str = PAGE_KEY, first_page: int = 1
) -> PageScores:
    """Candidates of a `/search/` answer of Vespa: each hit's `fields` and `relevance`."""
    children = _inside(response, "root", "children", default=[])
    scored = [
        (
            _names(hit.get("fields") or {}, str(hit.get("id", "")).rpartition("::")[2], page_key, first_page),
            hit.get("relevance"),
        )
        for hit in children
    ]
    return _candidates(scored, store, "Vespa", "relevance")


def _names(fields: Mapping[str, Any], entry_id: object, page_key: str, first_page: int) -> tuple[object, ...]:
    """What may name the page of an entry, in the order in which it is tried."""
    return (fields.get(page_key), *ChunkPages(first_page=first_page).page_names(fields), entry_id)


def _candidates(
    scored: Sequence[tuple[tuple[object, ...], Any]], store: PageStore, engine: str, field: str
) -> PageScores:
    """Page and score of each entry; the store is asked once for all names."""
    named = [[name for name in names if isinstance(name, str) and name] for names, _ in scored]
    known_pages = store.lookup_many(name for names in named for name in names)
    candidates = []
    for number, (names, (_, score)) in enumerate(zip(named, scored, strict=True), start=1):
        page_id = next((known_pages[name] for name in names if name in known_pages), None)
        if page_id is None:
            raise StoreError(
                f"entry {number} of {len(scored)} of {engine}'s answer names no page of the store at "
                f"{store.uri} (it says {', '.join(map(repr, names)) or 'nothing'}); keep the page's id or "
                "reference with it"
            )
        if not isinstance(score, int | float):
            raise ScoreError(
                f"entry {number} of {len(scored)} of {engine}'s answer has no score; wanted {field}"
            )
        candidates.append((page_id, float(score)))
    return candidates


def _inside(response: Mapping[str, Any], outer: str, inner: str, *, default: Any = None) -> list[Any]:  # noqa: ANN401
    """`response[outer][inner]`; an answer of another shape is refused."""
    entries = (response.get(outer) or {}).get(inner, default) if outer in response else None
    if not isinstance(entries, list):
        raise ScoreError(
            f"an answer with {', '.join(response) or 'nothing'} in it; wanted {outer!r} with a list of "
            f"{inner!r}"
        )
    return entries
