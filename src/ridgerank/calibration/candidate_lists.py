"""Calibration queries become candidate lists, as the retriever would return them to a user."""

from collections.abc import Sequence

from ridgerank.errors import CalibrationError
from ridgerank.records import Candidate, Query
from ridgerank.retrievers.base import Retriever


def find_candidates(retriever: Retriever, queries: Sequence[Query], k: int) -> dict[Query, list[Candidate]]:
    """The `k` best pages of each query; refused where all scores of every list are equal."""
    lists = retriever.search_many([query.text for query in queries], k)
    if all(len({candidate.score for candidate in candidates}) < 2 for candidates in lists):
        raise CalibrationError(
            f"{retriever.name} gives the candidates of each of {len(queries)} queries one and the same "
            "score: there is nothing to fuse with; use another retriever or other queries"
        )
    return {query: candidates for query, candidates in zip(queries, lists, strict=True) if candidates}
