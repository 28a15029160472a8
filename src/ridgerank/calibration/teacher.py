"""The teacher: margins of the full-depth model on uncompressed pages (eq. 6), each page encoded once."""

from collections.abc import Mapping, Sequence

from ridgerank.backbones.base import Backbone
from ridgerank.backbones.prefix import Prefix
from ridgerank.calibration.margins import MarginCache
from ridgerank.records import Candidate, Page

_PAIRS_A_PASS = 32
"""Queries run beside a copy of their page: so many at a time bound the memory."""


class Teacher:
    """Takes the margins that are wanted and not there yet, from pages as they come by."""

    def __init__(self, backbone: Backbone, cache: MarginCache) -> None:
        self._backbone = backbone
        self._cache = cache
        self._wanted: dict[str, list[str]] = {}

    def want(self, candidates: Mapping[str, Sequence[Candidate]]) -> None:
        """Want the margin of every query (by its text) over its candidates."""
        self._wanted = {}
        for query, found in candidates.items():
            for candidate in found:
                if self._cache.margin(query, candidate.page_id) is None:
                    self._wanted.setdefault(candidate.page_id, []).append(query)

    @property
    def missing(self) -> list[str]:
        """The pages of which a margin is wanted, in the order of their ids."""
        return sorted(self._wanted)

    def wants(self, page_id: str) -> bool:
        """Whether a margin of this page is wanted."""
        return page_id in self._wanted

    def look(self, page_ids: Sequence[str], prefixes: Sequence[Prefix]) -> None:
        """Take all margins wanted of these pages, encoded to full depth, and keep them."""
        pairs = [
            (page_id, query, prefix)
            for page_id, prefix in zip(page_ids, prefixes, strict=True)
            for query in self._wanted.get(page_id, [])
        ]
        margins: dict[str, dict[str, float]] = {}
        for start in range(0, len(pairs), _PAIRS_A_PASS):
            part = pairs[start : start + _PAIRS_A_PASS]
            found = self._backbone.pair_margins([pair[1] for pair in part], [pair[2] for pair in part])
            for (page_id, query, _), margin in zip(part, found.tolist(), strict=True):
                margins.setdefault(page_id, {})[query] = margin
        self._cache.add(margins)
        for page_id in margins:
            del self._wanted[page_id]

    def read(self, pages: Sequence[Page]) -> None:
        """Encode pages to full depth and take what is wanted of them."""
        contents = [self._backbone.content(page) for page in pages]
        prefixes = self._backbone.encode(contents, exit_layer=self._backbone.geometry.layers)
        self.look([page.page_id for page in pages], prefixes)
