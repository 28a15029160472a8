"""Rerankers that read page and query together."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from PIL.Image import Image

from experiments.baselines.base import Baseline
from ridgerank.backbones.base import Backbone
from ridgerank.calibration.teacher import TargetCache, complete_targets
from ridgerank.errors import RetrieverError
from ridgerank.page_sizing import PixelBudget
from ridgerank.ragged import Floats
from ridgerank.records import Candidate
from ridgerank.store.page_store import PageStore
from ridgerank.store.sidecar import rerender_pages


class TextJudge(Protocol):
    """A model that judges texts."""

    def judge(self, query: str, texts: Sequence[str]) -> Floats:
        """Probabilities (texts,) that each is relevant."""


class ImageJudge(Protocol):
    """A model that judges page images."""

    @property
    def page_budget(self) -> PixelBudget:
        """How large a page is read, so that it is resized once."""

    def judge(self, query: str, images: Sequence[Image]) -> Floats:
        """Probabilities (images,) that each is relevant."""


class TextReranker(Baseline):
    """A cross encoder over the text stored with each page."""

    def __init__(self, model: TextJudge, store: PageStore, *, name: str) -> None:
        self.name = name
        self._model = model
        self._texts = store.texts()
        if not any(text.strip() for text in self._texts.values()):
            raise RetrieverError(
                f"no page in the page store at {store.uri} has text to read; index with --ocr, or documents "
                "that carry a text layer"
            )

    def score(self, query: str, candidates: Sequence[Candidate]) -> Floats:
        """Probabilities; a page without text is read as an empty one."""
        return self._model.judge(query, [self._texts[candidate.page_id] for candidate in candidates])


class ImageReranker(Baseline):
    """A cross encoder over page images, rendered again from the documents."""

    def __init__(
        self, model: ImageJudge, store: PageStore, *, name: str, documents: Sequence[Path] = ()
    ) -> None:
        self.name = name
        self._model = model
        self._store = store
        self._documents = documents

    def score(self, query: str, candidates: Sequence[Candidate]) -> Floats:
        """Probabilities, a few pages in memory at a time."""
        page_ids = [candidate.page_id for candidate in candidates]
        probability_of: dict[str, float] = {}
        pixels = self._model.page_budget
        for batch in rerender_pages(self._store, page_ids, max_pixels=pixels, documents=self._documents):
            probabilities = self._model.judge(query, [page.image for page in batch])
            probability_of |= {
                page.page_id: value for page, value in zip(batch, probabilities.tolist(), strict=True)
            }
        return np.array([probability_of[page_id] for page_id in page_ids], dtype=np.float64)


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
                [self._margins.target("margin", query, each.page_id) for each in candidates], float
            )
            for query, candidates in candidates_of.items()
        }
