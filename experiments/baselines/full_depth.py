"""A backbone's margins at full depth as an arm: each page is read once for all its queries, and kept."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from experiments.baselines.base import Baseline
from ridgerank.backbones.base import Backbone
from ridgerank.calibration.rerender import see_pages
from ridgerank.calibration.target_cache import TargetCache
from ridgerank.calibration.teacher import Teacher
from ridgerank.ragged import Floats
from ridgerank.records import Candidate
from ridgerank.store.page_store import PageStore


class FullDepth(Baseline):
    """Yes − no of the whole model over the uncompressed page (eq. 6), without any readout."""

    def __init__(
        self,
        backbone: Backbone,
        store: PageStore,
        margins: TargetCache,
        *,
        name: str,
        documents: Sequence[Path] = (),
    ) -> None:
        """Score pages of `store`, of whatever backbone; `documents` is where pages are looked up again."""
        self.name = name
        self._backbone = backbone
        self._store = store
        self._margins = margins
        self._documents = documents

    def score(self, query: str, candidates: Sequence[Candidate]) -> Floats:
        """Margins of one query."""
        return self.score_many({query: candidates})[query]

    def score_many(self, asked: Mapping[str, Sequence[Candidate]]) -> dict[str, Floats]:
        """Margins of many queries; those that were taken before are not taken again."""
        teacher = Teacher(self._backbone, self._margins)
        teacher.request(asked)
        pixels = self._backbone.max_pixels
        missing = teacher.missing
        for batch in see_pages(self._store, missing, max_pixels=pixels, documents=self._documents):
            teacher.encode(batch)
        return {
            query: np.array(
                [self._margins.margin(query, one.page_id) for one in candidates], dtype=np.float64
            )
            for query, candidates in asked.items()
        }
