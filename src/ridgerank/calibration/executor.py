"""Where the model of a calibration runs: in this process (`LocalExecutor`), or on others (`scaleout/`)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from ridgerank.backbones.base import Backbone
from ridgerank.calibration.ridge_fit import RemoteStates
from ridgerank.calibration.synthetic_queries import QuerySet, is_query
from ridgerank.calibration.target_cache import TargetCache
from ridgerank.calibration.teacher import MemoryTargets, Teacher
from ridgerank.ragged import Floats
from ridgerank.ranking.shallow import ShallowPass
from ridgerank.records import Candidate, Query, State, Target
from ridgerank.store.rerender import BATCH_PAGES, PageLocation, require_rendered, rerender_pages


@dataclass(frozen=True, slots=True)
class PageTargets:
    """Targets of some pages: target → page id → text of the query → value."""

    pages: int
    values: Mapping[Target, Mapping[str, Mapping[str, float]]]


class Executor(Protocol):
    """Runs the model, in this process or on other machines."""

    def write_queries(self, cache: TargetCache, *, count: int, documents: Sequence[Path]) -> QuerySet:
        """Queries the model writes for pages, which are found again in `documents`."""

    def compute_targets(
        self,
        pages: Sequence[PageLocation],
        queries_by_page: Mapping[str, Sequence[str]],
        targets: Sequence[Target],
    ) -> Iterator[PageTargets]:
        """Targets of each page's queries, some pages at a time."""

    def compute_states(
        self,
        candidates: Mapping[Query, Sequence[Candidate]],
        states: Sequence[State],
        *,
        on_queries_run: Callable[[int], None],
    ) -> Mapping[State, Floats | RemoteStates]:
        """States (members, dim) over the stored candidates; the callback counts queries as they are done."""


@dataclass(frozen=True, slots=True)
class LocalExecutor:
    """The model in this process."""

    shallow: ShallowPass

    def write_queries(self, cache: TargetCache, *, count: int, documents: Sequence[Path]) -> QuerySet:
        """Queries the model writes for pages, in the order of page ids, until there are `count`."""
        store, backbone = self.shallow.store, self.shallow.backbone
        queries: dict[str, Query] = {}
        page_ids = sorted(store.page_ids())
        for start in range(0, len(page_ids), count):
            some_ids = page_ids[start : start + count]
            unwritten = [page_id for page_id in some_ids if cache.written_query(page_id) is None]
            for pages in rerender_pages(
                store, unwritten, max_pixels=backbone.page_budget, documents=documents
            ):
                contents = [backbone.content(page) for page in pages]
                prefixes = backbone.encode(contents, exit_layer=backbone.geometry.layers)
                for page, text in zip(pages, backbone.write_queries(prefixes), strict=True):
                    cache.add_written_query(page.page_id, text)
            for page_id in some_ids:
                text = cache.written_query(page_id) or ""
                if is_query(text) and len(queries) < count:
                    queries.setdefault(text.casefold(), Query(f"asked-{page_id[:16]}", text))
            if len(queries) == count:
                break
        return QuerySet(tuple(queries.values()), f"asked of the model: {len(queries)}, a page each")

    def compute_targets(
        self,
        pages: Sequence[PageLocation],
        queries_by_page: Mapping[str, Sequence[str]],
        targets: Sequence[Target],
    ) -> Iterator[PageTargets]:
        """Targets of each page's queries, some pages at a time."""
        for start in range(0, len(pages), BATCH_PAGES):
            batch = pages[start : start + BATCH_PAGES]
            yield compute_page_targets(self.shallow.backbone, batch, queries_by_page, targets)

    def compute_states(
        self,
        candidates: Mapping[Query, Sequence[Candidate]],
        states: Sequence[State],
        *,
        on_queries_run: Callable[[int], None],
    ) -> Mapping[State, Floats | RemoteStates]:
        """States (members, dim) over the stored candidates; the callback counts queries as they are done."""
        lists: list[Mapping[State, Floats]] = []
        for query, query_candidates in candidates.items():
            lists.append(compute_list_states(self.shallow, query.text, query_candidates, states))
            on_queries_run(1)
        return {state: np.concatenate([list_states[state] for list_states in lists]) for state in states}


def compute_page_targets(
    backbone: Backbone,
    pages: Sequence[PageLocation],
    queries_by_page: Mapping[str, Sequence[str]],
    targets: Sequence[Target],
) -> PageTargets:
    """Render a few pages again and compute the targets of their queries, each page encoded once."""
    storage = MemoryTargets()
    teacher = Teacher(backbone, storage, targets=targets)
    teacher.request_pairs({page.ref.page_id: queries_by_page[page.ref.page_id] for page in pages})
    teacher.encode(require_rendered(pages, max_pixels=backbone.page_budget))
    return PageTargets(len(pages), storage.values)


def compute_list_states(
    shallow: ShallowPass, query: str, candidates: Sequence[Candidate], states: Sequence[State]
) -> dict[State, Floats]:
    """(candidates, dim) each, in float64: the states of one query, from one pass.

    One state alone comes from the same pass, so that a readout does not depend on what it is compared with.
    """
    both = shallow.run_both(query, [candidate.page_id for candidate in candidates])
    return {state: both[state].cpu().numpy().astype(np.float64) for state in states}
