"""The interface of a sentence-transformers `CrossEncoder`: `rank` and `predict`. Needs no other package."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from PIL.Image import Image

from ridgerank.errors import ScoreError
from ridgerank.integrations.matching import rank_documents, score_pairs
from ridgerank.reranker.candidates import Document
from ridgerank.reranker.reranker import Reranker

PageLike: TypeAlias = str | Image
"""A stored page by id or reference, a text, or the image of a page."""


class EvaluationRecord:
    """What sentence-transformers' evaluators file their results in."""

    def __init__(self) -> None:
        self.metrics: list[dict[str, Any]] = []

    def set_evaluation_metrics(
        self, evaluator: object, metrics: dict[str, Any], epoch: int = 0, step: int = 0
    ) -> None:
        """Keep the metrics of one evaluation."""
        self.metrics.append(dict(metrics))


class PageCrossEncoder:
    """A `Reranker` for code that was written for a `CrossEncoder`: sentence-transformers' evaluators, too.

    `rank` gives scores from 0 to 1, by retriever and model together. `predict` gives the readout's score of
    each pair by itself, which depends on no other pair and no retriever. A progress bar and a batch size
    are accepted and change nothing: the pages of a query run together.
    """

    num_labels = 1

    def __init__(self, reranker: Reranker) -> None:
        self.reranker = reranker
        self.model_card_data = EvaluationRecord()
        """What evaluators measured."""

    @property
    def device(self) -> torch.device:
        """Where the model runs."""
        return self.reranker.backbone.device

    def rank(
        self,
        query: str,
        documents: Sequence[PageLike],
        top_k: int | None = None,
        return_documents: bool = False,
        *,
        batch_size: int = 32,
        show_progress_bar: bool | None = None,
        scores: Sequence[float] | None = None,
    ) -> list[dict[str, Any]]:
        """Rank pages: `corpus_id` (the index in `documents`) and `score`, best first.

        `scores` are the retriever's; without them the calibration's, or BM25, scores the documents. With
        `return_documents` a page comes back under `text`, an image under `image`.
        """
        if scores is not None and len(scores) != len(documents):
            raise ScoreError(f"{len(scores)} scores for {len(documents)} documents; expected one each")
        retriever_scores = [None] * len(documents) if scores is None else [float(score) for score in scores]
        pages = [self._document(page, score) for page, score in zip(documents, retriever_scores, strict=True)]
        rows = []
        for index, page in rank_documents(self.reranker, query, pages, top_k=top_k):
            row: dict[str, Any] = {"corpus_id": index, "score": page.relevance_score}
            if return_documents:
                row["text" if isinstance(documents[index], str) else "image"] = documents[index]
            rows.append(row)
        return rows

    def predict(
        self,
        inputs: Sequence[Sequence[Any]],
        prompt_name: str | None = None,
        *,
        batch_size: int = 32,
        show_progress_bar: bool | None = None,
        convert_to_numpy: bool = True,
        convert_to_tensor: bool = False,
    ) -> NDArray[np.float32] | torch.Tensor | list[torch.Tensor]:
        """Score (query, page) pairs in float32, or one pair."""
        if prompt_name is not None:
            raise ScoreError(
                f"prompt {prompt_name!r}, expected none: the prompt is part of what was stored and calibrated"
            )
        single = len(inputs) == 2 and isinstance(inputs[0], str)
        pairs: Sequence[Sequence[Any]] = [inputs] if single else inputs
        documents = [(query, self._document(page)) for query, page in pairs]
        scores = score_pairs(self.reranker, documents, readout_alone=True).astype(np.float32)
        if convert_to_tensor:
            return torch.from_numpy(scores)[0] if single else torch.from_numpy(scores)
        if convert_to_numpy:
            return scores[0] if single else scores
        return list(torch.from_numpy(scores))

    def _document(self, page: PageLike, score: float | None = None) -> Document:
        if isinstance(page, str):
            return Document((page,), page, score=score)
        return Document(image=lambda: page, score=score)
