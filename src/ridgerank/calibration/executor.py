"""Whoever runs the model for a calibration: this process (`LocalExecutor`), or others (`scaleout/`)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from ridgerank.backbones.base import Backbone
from ridgerank.calibration.rerender import BATCH_PAGES, FoundAgain, render_again, see_pages
from ridgerank.calibration.ridge_fit import StatesElsewhere
from ridgerank.calibration.synthetic_queries import MadeQueries, is_query
from ridgerank.calibration.target_cache import TargetCache
from ridgerank.calibration.teacher import MemoryTargets, Teacher
from ridgerank.ragged import Floats
from ridgerank.ranking.shallow import ShallowPass
from ridgerank.records import Candidate, Query, State, Target
from ridgerank.store.page_store import PageStore

if TYPE_CHECKING:
    from ridgerank.calibration.calibrate import CalibrationRequest


@dataclass(frozen=True, slots=True)
class PageTargets:
    """Targets of some pages: target → page id → text of the query → value."""

    pages: int
    values: Mapping[Target, Mapping[str, Mapping[str, float]]]


class Executor(Protocol):
    """Whoever runs the model: this process, or others."""

    def queries(self, store: PageStore, request: "CalibrationRequest", cache: TargetCache) -> MadeQueries:
        """Queries the model writes for pages."""

    def teach(
        self, found: Sequence[FoundAgain], wanted: Mapping[str, Sequence[str]], targets: Sequence[Target]
    ) -> Iterator[PageTargets]:
        """Targets of the queries wanted over each page, some pages at a time."""

    def states(
        self, candidates: Mapping[Query, Sequence[Candidate]], states: Sequence[State]
    ) -> Iterator[int | Mapping[State, Floats | StatesElsewhere]]:
        """States over the stored candidates: first how many queries more are done, at the end the states."""


@dataclass(frozen=True, slots=True)
class LocalExecutor:
    """The model in this process."""

    store: PageStore
    backbone: Backbone

    def queries(self, store: PageStore, request: "CalibrationRequest", cache: TargetCache) -> MadeQueries:
        """Queries the model writes for pages."""
        return asked_of_model(store, self.backbone, request, cache)

    def teach(
        self, found: Sequence[FoundAgain], wanted: Mapping[str, Sequence[str]], targets: Sequence[Target]
    ) -> Iterator[PageTargets]:
        """Targets of the queries wanted over each page, some pages at a time."""
        for start in range(0, len(found), BATCH_PAGES):
            yield teach_pages(self.backbone, found[start : start + BATCH_PAGES], wanted, targets)

    def states(
        self, candidates: Mapping[Query, Sequence[Candidate]], states: Sequence[State]
    ) -> Iterator[int | Mapping[State, Floats | StatesElsewhere]]:
        """States over the stored candidates: first how many queries more are done, at the end the states."""
        shallow = ShallowPass(self.backbone, self.store)
        found: dict[State, list[Floats]] = {state: [] for state in states}
        for query, own in candidates.items():
            for state, ran in states_of(shallow, query.text, own, states).items():
                found[state].append(ran)
            yield 1
        yield {state: np.concatenate(parts) for state, parts in found.items()}


def teach_pages(
    backbone: Backbone,
    found: Sequence[FoundAgain],
    wanted: Mapping[str, Sequence[str]],
    targets: Sequence[Target],
) -> PageTargets:
    """Render a few pages again and take what is wanted of them, each encoded once."""
    taken = MemoryTargets()
    teacher = Teacher(backbone, taken, targets=targets)
    teacher.want_pairs({one.ref.page_id: wanted[one.ref.page_id] for one in found})
    teacher.read(render_again(found, max_pixels=backbone.max_pixels))
    return PageTargets(len(found), taken.values)


def states_of(
    shallow: ShallowPass, query: str, candidates: Sequence[Candidate], states: Sequence[State]
) -> dict[State, Floats]:
    """(candidates, dim) each, in float64: the states of one query, as a request runs them."""
    page_ids = [candidate.page_id for candidate in candidates]
    return {
        state: shallow.run(query, page_ids, state=state).states.cpu().numpy().astype(np.float64)
        for state in states
    }


def asked_of_model(
    store: PageStore, backbone: Backbone, request: "CalibrationRequest", cache: TargetCache
) -> MadeQueries:
    """Queries the model writes for pages, in the order of page ids, until there are enough."""
    found: dict[str, Query] = {}
    page_ids = sorted(store.page_ids())
    for start in range(0, len(page_ids), request.count):
        some = page_ids[start : start + request.count]
        unasked = [page_id for page_id in some if cache.written(page_id) is None]
        for batch in see_pages(store, unasked, max_pixels=backbone.max_pixels, documents=request.documents):
            contents = [backbone.content(page) for page in batch]
            prefixes = backbone.encode(contents, exit_layer=backbone.geometry.layers)
            for page, text in zip(batch, backbone.write_queries(prefixes), strict=True):
                cache.add_written(page.page_id, text)
        for page_id in some:
            text = cache.written(page_id) or ""
            if is_query(text) and len(found) < request.count:
                found.setdefault(text.casefold(), Query(f"asked-{page_id[:16]}", text))
        if len(found) == request.count:
            break
    return MadeQueries(tuple(found.values()), f"asked of the model: {len(found)}, a page each")
