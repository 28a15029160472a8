"""Targets: what a teacher says of queries and pages. A readout learns to reproduce it.

The teacher is the full-depth model over uncompressed pages: the margin (eq. 6) or the query's likelihood,
both for little more than one. They are stored as they are computed: an interrupted calibration goes on where
it stopped. Or the teacher is a file: a TREC run of any reranker.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ridgerank.atomic import lock_file, say_what_cannot_be_written
from ridgerank.backbones.base import Backbone
from ridgerank.backbones.decoder import PrefixBatch
from ridgerank.errors import CalibrationError
from ridgerank.lineage import Lineage
from ridgerank.records import TARGETS, Candidate, Query, Target
from ridgerank.store.page_store import PageStore
from ridgerank.store.sidecar import rerender_pages
from ridgerank.trec import read_run

OWN = "the backbone itself"
CandidateLists = Mapping[Query, Sequence[Candidate]]
_PAIRS_PER_PASS = 32
"""Each query runs beside a copy of its page: this bounds the memory."""
FILE_NAME = "margins.jsonl"


class TargetCache:
    """Targets by query and page, in memory and in a file that only grows.

    One line of JSON per page: its id and a target of every query run over it. The first line names the model;
    a file of another model, prompt or pixel budget is begun anew. A last line cut short is dropped.
    """

    name = OWN

    def __init__(self, folder: Path, lineage: Lineage) -> None:
        self._path = folder / FILE_NAME
        self._header = {"teacher": lineage.teacher_fingerprint()}
        self._targets: dict[tuple[Target, str, str], float] = {}
        folder.mkdir(parents=True, exist_ok=True)
        self._read()

    def __len__(self) -> int:
        return len(self._targets)

    def target(self, target: Target, query: str, page_id: str) -> float | None:
        """One target of a query over a page, None where it was never computed."""
        return self._targets.get((target, digest_query(query), page_id))

    def add(self, values: Mapping[str, Mapping[str, float]], *, target: Target = "margin") -> None:
        """Keep values of one target: page id → text of the query → value."""
        rows = [
            {
                "page_id": page_id,
                f"{target}s": {digest_query(text): value for text, value in by_query.items()},
            }
            for page_id, by_query in values.items()
        ]
        for row in rows:
            self._add_row(row)
        with say_what_cannot_be_written(self._path), self._path.open("ab") as file:
            lock_file(file.fileno(), wait=True)
            file.write("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode())
            file.flush()
            os.fsync(file.fileno())

    def _read(self) -> None:
        with say_what_cannot_be_written(self._path), self._path.open("a+b") as file:
            lock_file(file.fileno(), wait=True)  # another calibration may be in the middle of a line
            file.seek(0)
            content = file.read()
            lines = content[: content.rfind(b"\n") + 1].splitlines()
            is_current = bool(lines) and _parse(lines[0]) == self._header
            if not is_current or not content.endswith(b"\n"):
                file.truncate(content.rfind(b"\n") + 1 if is_current else 0)
            if not is_current:
                file.write((json.dumps(self._header) + "\n").encode())
                return
        for line in lines[1:]:
            row = _parse(line)
            if isinstance(row, dict) and "page_id" in row:  # else the line is damaged: its page is read again
                self._add_row(row)

    def _add_row(self, row: Mapping[str, Any]) -> None:
        page_id = row["page_id"]
        for target in TARGETS:
            for query, value in row.get(f"{target}s", {}).items():
                self._targets[target, query, page_id] = value


def complete_targets(
    backbone: Backbone,
    store: PageStore,
    cache: TargetCache,
    candidates: Mapping[str, Iterable[Candidate]],
    *,
    targets: Sequence[Target] = ("margin",),
    documents: Sequence[Path] = (),
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> None:
    """Compute and store the targets of queries, by their text, that are missing; a page is encoded once."""
    missing: dict[str, list[str]] = {}
    for query, query_candidates in candidates.items():
        for each in query_candidates:
            if any(cache.target(target, query, each.page_id) is None for target in targets):
                missing.setdefault(each.page_id, []).append(query)
    done = 0
    progress(done, len(missing))
    batches = rerender_pages(store, sorted(missing), max_pixels=backbone.page_budget, documents=documents)
    for pages in batches:
        prefixes = backbone.encode(
            [backbone.content(page) for page in pages], exit_layer=backbone.geometry.layers
        )
        pairs = [
            (page.page_id, query, prefix)
            for page, prefix in zip(pages, prefixes, strict=True)
            for query in missing[page.page_id]
        ]
        for start in range(0, len(pairs), _PAIRS_PER_PASS):
            page_ids, queries, batch = zip(*pairs[start : start + _PAIRS_PER_PASS], strict=True)
            computed = backbone.targets(list(queries), PrefixBatch(list(batch)), targets=tuple(targets))
            for target, column in computed.items():
                values: dict[str, dict[str, float]] = {page_id: {} for page_id in page_ids}
                for page_id, query, value in zip(page_ids, queries, column.tolist(), strict=True):
                    values[page_id][query] = value
                cache.add(values, target=target)
        done += len(pages)
        progress(done, len(missing))


@dataclass(frozen=True, slots=True)
class TeacherScores:
    """Scores of a file, in place of the model's own targets."""

    name: str
    scores: Mapping[str, Mapping[str, float]]


def target_column(
    teacher: TeacherScores | TargetCache, target: Target, lists: CandidateLists
) -> list[float | None]:
    """What a teacher says of all candidates, list by list; None where it says nothing."""
    pairs = ((query, each.page_id) for query, candidates in lists.items() for each in candidates)
    if isinstance(teacher, TargetCache):
        return [teacher.target(target, query.text, page_id) for query, page_id in pairs]
    return [teacher.scores.get(query.query_id, {}).get(page_id) for query, page_id in pairs]


def read_teacher(path: Path, store: PageStore) -> TeacherScores:
    """The scores of a TREC run."""
    if not path.is_file():
        raise CalibrationError(f"no file {str(path)!r} for a teacher; expected a TREC run of a reranker")
    scores = read_run(path).to_dict()
    page_ids = store.lookup_many(page for by_page in scores.values() for page in by_page)
    known = {
        query: {page_ids[page]: score for page, score in by_page.items() if page in page_ids}
        for query, by_page in scores.items()
    }
    return TeacherScores(f"the run {path.name}", known)


def keep_scored(
    lists: CandidateLists, teacher: TeacherScores | TargetCache, target: Target
) -> dict[Query, list[Candidate]]:
    """The candidates a teacher has scored; a query with fewer than two of them is left out."""
    scores = iter(target_column(teacher, target, lists))
    scored = {
        query: [each for each in candidates if next(scores) is not None]
        for query, candidates in lists.items()
    }
    kept = {query: candidates for query, candidates in scored.items() if len(candidates) > 1}
    if not kept:
        raise CalibrationError(
            f"{teacher.name} scores no two candidates of any of {len(lists)} queries; expected scores under "
            "the same query ids and page names as here"
        )
    return kept


def _parse(line: bytes) -> Any:  # noqa: ANN401 (whatever JSON holds)
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def digest_query(query: str) -> str:
    """A short name of a query's text."""
    return hashlib.blake2b(query.encode(), digest_size=16).hexdigest()
