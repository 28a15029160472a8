"""Targets: what the full-depth model says of uncompressed pages, each page encoded once.

A target is the margin (eq. 6) or the query's likelihood. Which of them suits a model is measured
(`selection.py`), and a page that is in memory at full depth gives both for little more than one.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from ridgerank.backbones.base import Backbone
from ridgerank.backbones.dense_prefixes import DensePrefixes
from ridgerank.backbones.prefix import Prefix
from ridgerank.records import Candidate, Page, Target

_PAIRS_PER_PASS = 32
"""Each query runs beside a copy of its page: this bounds the memory."""


class TargetStorage(Protocol):
    """A `TargetCache`, or anything that keeps targets in the same way."""

    def target(self, target: Target, query: str, page_id: str) -> float | None:
        """The target of a query over a page, None where it was never computed."""

    def add(self, values: Mapping[str, Mapping[str, float]], *, target: Target = "margin") -> None:
        """Keep targets: page id → text of the query → value."""


class MemoryTargets:
    """Targets in memory, to be stored elsewhere."""

    def __init__(self) -> None:
        self.values: dict[Target, dict[str, dict[str, float]]] = {}
        """Target → page id → text of the query → value."""

    def target(self, target: Target, query: str, page_id: str) -> float | None:
        """The target of a query over a page, None where it was never computed."""
        return self.values.get(target, {}).get(page_id, {}).get(query)

    def add(self, values: Mapping[str, Mapping[str, float]], *, target: Target = "margin") -> None:
        """Keep targets: page id → text of the query → value."""
        for page_id, by_query in values.items():
            self.values.setdefault(target, {}).setdefault(page_id, {}).update(by_query)


class Teacher:
    """Computes targets that are requested and not stored yet, from pages encoded to full depth."""

    def __init__(
        self, backbone: Backbone, cache: TargetStorage, *, targets: Sequence[Target] = ("margin",)
    ) -> None:
        self._backbone = backbone
        self._cache = cache
        self._targets = tuple(targets)
        self._queries: dict[str, list[str]] = {}

    def request(self, candidates: Mapping[str, Sequence[Candidate]]) -> None:
        """Request the missing targets of every query (by its text) over its candidates."""
        self._queries = find_missing_targets(candidates, self._cache, self._targets)

    def request_pairs(self, queries_by_page: Mapping[str, Sequence[str]]) -> None:
        """Request the targets of these queries over each page, by page id."""
        self._queries = {page_id: list(queries) for page_id, queries in queries_by_page.items()}

    @property
    def missing(self) -> list[str]:
        """The pages of which a target is requested, in the order of their ids."""
        return sorted(self._queries)

    def wants(self, page_id: str) -> bool:
        """Whether a target of this page is requested."""
        return page_id in self._queries

    def compute(self, page_ids: Sequence[str], prefixes: Sequence[Prefix]) -> None:
        """Compute and store the targets requested of these pages, encoded to full depth."""
        pairs = [
            (page_id, query, prefix)
            for page_id, prefix in zip(page_ids, prefixes, strict=True)
            for query in self._queries.get(page_id, [])
        ]
        values: dict[Target, dict[str, dict[str, float]]] = {target: {} for target in self._targets}
        for start in range(0, len(pairs), _PAIRS_PER_PASS):
            batch = pairs[start : start + _PAIRS_PER_PASS]
            prefix_batch = DensePrefixes([prefix for _, _, prefix in batch])
            targets = self._backbone.targets(
                [query for _, query, _ in batch], prefix_batch, targets=self._targets
            )
            for target, pair_values in targets.items():
                for (page_id, query, _), value in zip(batch, pair_values.tolist(), strict=True):
                    values[target].setdefault(page_id, {})[query] = value
        for target, by_page in values.items():
            self._cache.add(by_page, target=target)
        for page_id in {pair[0] for pair in pairs}:
            del self._queries[page_id]

    def encode(self, pages: Sequence[Page]) -> None:
        """Encode pages to full depth and compute the targets requested of them."""
        contents = [self._backbone.content(page) for page in pages]
        prefixes = self._backbone.encode(contents, exit_layer=self._backbone.geometry.layers)
        self.compute([page.page_id for page in pages], prefixes)


def find_missing_targets(
    candidates: Mapping[str, Sequence[Candidate]], cache: TargetStorage, targets: Sequence[Target]
) -> dict[str, list[str]]:
    """Page id → queries of which a target over this page is not stored yet."""
    queries_by_page: dict[str, list[str]] = {}
    for query, query_candidates in candidates.items():
        for candidate in query_candidates:
            stored = (cache.target(target, query, candidate.page_id) for target in targets)
            if any(value is None for value in stored):
                queries_by_page.setdefault(candidate.page_id, []).append(query)
    return queries_by_page
