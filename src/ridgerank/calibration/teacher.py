"""The teacher: what the full-depth model says of uncompressed pages, each page encoded once.

That is its margin (eq. 6), the query's likelihood, or both: which of them a model is good for is measured
(`selection.py`), and a page that is in memory at full depth gives both for little more than one.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from torch import Tensor

from ridgerank.backbones.base import Backbone
from ridgerank.backbones.dense_prefixes import DensePrefixes
from ridgerank.backbones.prefix import Prefix
from ridgerank.records import Candidate, Page, Target

_PAIRS_A_PASS = 32
"""Queries run beside a copy of their page: so many at a time bound the memory."""


class TargetStorage(Protocol):
    """A `TargetCache`, or whatever keeps targets as it does."""

    def target(self, target: Target, query: str, page_id: str) -> float | None:
        """The target of a query over a page, None where it was never taken."""

    def add(self, values: Mapping[str, Mapping[str, float]], *, target: Target = "margin") -> None:
        """Keep targets: page id → text of the query → value."""


class MemoryTargets:
    """Targets in memory, for whoever keeps them elsewhere."""

    def __init__(self) -> None:
        self.values: dict[Target, dict[str, dict[str, float]]] = {}
        """Target → page id → text of the query → value."""

    def target(self, target: Target, query: str, page_id: str) -> float | None:
        """The target of a query over a page, None where it was never taken."""
        return self.values.get(target, {}).get(page_id, {}).get(query)

    def add(self, values: Mapping[str, Mapping[str, float]], *, target: Target = "margin") -> None:
        """Keep targets: page id → text of the query → value."""
        for page_id, own in values.items():
            self.values.setdefault(target, {}).setdefault(page_id, {}).update(own)


class Teacher:
    """Takes the targets that are wanted and not there yet, from pages as they come by."""

    def __init__(
        self, backbone: Backbone, cache: TargetStorage, *, targets: Sequence[Target] = ("margin",)
    ) -> None:
        self._backbone = backbone
        self._cache = cache
        self._targets = tuple(targets)
        self._wanted: dict[str, list[str]] = {}

    def want(self, candidates: Mapping[str, Sequence[Candidate]]) -> None:
        """Want the targets of every query (by its text) over its candidates."""
        self._wanted = wanted_pairs(candidates, self._cache, self._targets)

    def want_pairs(self, wanted: Mapping[str, Sequence[str]]) -> None:
        """Want the targets of given queries over each page, by page id."""
        self._wanted = {page_id: list(queries) for page_id, queries in wanted.items()}

    @property
    def missing(self) -> list[str]:
        """The pages of which a target is wanted, in the order of their ids."""
        return sorted(self._wanted)

    def wants(self, page_id: str) -> bool:
        """Whether a target of this page is wanted."""
        return page_id in self._wanted

    def look(self, page_ids: Sequence[str], prefixes: Sequence[Prefix]) -> None:
        """Take all that is wanted of these pages, encoded to full depth, and keep it."""
        pairs = [
            (page_id, query, prefix)
            for page_id, prefix in zip(page_ids, prefixes, strict=True)
            for query in self._wanted.get(page_id, [])
        ]
        values: dict[Target, dict[str, dict[str, float]]] = {target: {} for target in self._targets}
        for start in range(0, len(pairs), _PAIRS_A_PASS):
            part = pairs[start : start + _PAIRS_A_PASS]
            found = self._taken([pair[1] for pair in part], [pair[2] for pair in part])
            for target, own in found.items():
                for (page_id, query, _), value in zip(part, own.tolist(), strict=True):
                    values[target].setdefault(page_id, {})[query] = value
        for target, by_page in values.items():
            self._cache.add(by_page, target=target)
        for page_id in {pair[0] for pair in pairs}:
            del self._wanted[page_id]

    def read(self, pages: Sequence[Page]) -> None:
        """Encode pages to full depth and take what is wanted of them."""
        contents = [self._backbone.content(page) for page in pages]
        prefixes = self._backbone.encode(contents, exit_layer=self._backbone.geometry.layers)
        self.look([page.page_id for page in pages], prefixes)

    def _taken(self, queries: Sequence[str], prefixes: Sequence[Prefix]) -> dict[Target, Tensor]:
        """The targets (pairs,) of query i over page i."""
        return self._backbone.targets(queries, DensePrefixes(prefixes), targets=self._targets)


def wanted_pairs(
    candidates: Mapping[str, Sequence[Candidate]], cache: TargetStorage, targets: Sequence[Target]
) -> dict[str, list[str]]:
    """Page id → queries of which a target over it is not known yet."""
    wanted: dict[str, list[str]] = {}
    for query, found in candidates.items():
        for candidate in found:
            known = (cache.target(target, query, candidate.page_id) for target in targets)
            if any(value is None for value in known):
                wanted.setdefault(candidate.page_id, []).append(query)
    return wanted
