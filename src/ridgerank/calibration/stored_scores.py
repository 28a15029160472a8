"""Scores of a file as a teacher: a TREC run, or judgements."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ridgerank.errors import CalibrationError
from ridgerank.records import Candidate, Query
from ridgerank.runs.trec import QRELS_COLUMNS, RUN_COLUMNS, read_qrels, read_run
from ridgerank.store.page_store import PageStore

CandidateLists = Mapping[Query, Sequence[Candidate]]
"""Candidates by query."""


def ignore_pages(pages: int) -> None:
    """Count nothing."""


class StoredScores:
    """Scores of a file: a run, or judgements, where a page without one is not relevant."""

    def __init__(
        self, name: str, scores: Mapping[str, Mapping[str, float]], store: PageStore, *, default: float | None
    ) -> None:
        self.name = name
        self._default = default
        page_ids = store.lookup_many(page for by_page in scores.values() for page in by_page)
        self._scores = {
            (query, page_ids[page]): float(score)
            for query, by_page in scores.items()
            for page, score in by_page.items()
            if page in page_ids
        }
        self._queries = set(scores)

    def count_pages_to_score(self, lists: CandidateLists) -> int:
        """None: the file has them all."""
        return 0

    def score(
        self, lists: CandidateLists, *, on_pages_scored: Callable[[int], None] = ignore_pages
    ) -> dict[tuple[str, str], float]:
        """The scores of the file; a query it does not name has none."""
        pairs = [(query.query_id, candidate.page_id) for query in lists for candidate in lists[query]]
        scored = {pair: self._scores.get(pair, self._default) for pair in pairs if pair[0] in self._queries}
        return {pair: score for pair, score in scored.items() if score is not None}


def read_score_file(path: Path, store: PageStore) -> StoredScores:
    """A run or judgements, told apart by the fields of their first line."""
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        fields = len(next((line for line in file if line.strip()), "").split())
    if fields == len(RUN_COLUMNS.split()):
        run = read_run(path)
        scores: dict[str, dict[str, float]] = {}
        for query, page, _, score in run.rows():
            scores.setdefault(query, {})[page] = score
        return StoredScores(f"the run {path.name}", scores, store, default=None)
    if fields == len(QRELS_COLUMNS.split()):
        judged = {
            query: {page: float(max(grade, 0)) for page, grade in grades.items()}
            for query, grades in read_qrels(path).items()
        }
        return StoredScores(f"the judgements {path.name}", judged, store, default=0.0)
    raise CalibrationError(
        f"{path}: {fields} fields in its first line; wanted a run ({RUN_COLUMNS}) or judgements "
        f"({QRELS_COLUMNS})"
    )
