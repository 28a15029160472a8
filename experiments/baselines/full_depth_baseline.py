"""A backbone's margins at full depth as a baseline: each page is read once for all its queries."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from experiments.baselines.base import Baseline
from ridgerank.backbones.base import Backbone
from ridgerank.calibration.teacher import TargetCache, complete_targets
from ridgerank.ragged import Floats
from ridgerank.records import Candidate
from ridgerank.store.page_store import PageStore


class FullDepthBaseline(Baseline):
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
        """Score pages of `store`, made by any backbone; `documents` is where page images are found."""
        self.name = name
        self._backbone = backbone
        self._store = store
        self._margins = margins
        self._documents = documents

    def score(self, query: str, candidates: Sequence[Candidate]) -> Floats:
        """Margins of one query."""
        return self.score_many({query: candidates})[query]

    def score_many(self, candidates_of: Mapping[str, Sequence[Candidate]]) -> dict[str, Floats]:
        """Margins of many queries; those in the cache are not computed again."""
        complete_targets(self._backbone, self._store, self._margins, candidates_of, documents=self._documents)
        return {
            query: np.array(
                [self._margins.margin(query, candidate.page_id) for candidate in candidates], dtype=np.float64
            )
            for query, candidates in candidates_of.items()
        }
