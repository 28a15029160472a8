"""The interface of a sentence-transformers `CrossEncoder`: `rank` and `predict`. Needs no other package."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import torch
from PIL.Image import Image

from ridgerank.adapters.matching import LibraryDocument, rank_documents, score_pairs
from ridgerank.errors import ScoreError
from ridgerank.ragged import Floats
from ridgerank.ranking.reranker import Reranker

PageLike: TypeAlias = str | Image
"""A stored page by id or reference, or the image of a page."""


class PageCrossEncoder:
    """A `Reranker` for code that was written for a `CrossEncoder`.

    Scores are fused scores, comparable within one query only. A progress bar and a batch size are accepted
    and change nothing: the pages of a query run together.
    """

    def __init__(self, reranker: Reranker) -> None:
        self.reranker = reranker

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

        `scores` are the retriever's; without them the retriever of the calibration scores the pages. With
        `return_documents` a page comes back under `text`, an image under `image`.
        """
        if scores is not None and len(scores) != len(documents):
            raise ScoreError(f"{len(scores)} scores for {len(documents)} documents; wanted one each")
        retriever_scores = [None] * len(documents) if scores is None else [float(score) for score in scores]
        pages = [_document(page, score) for page, score in zip(documents, retriever_scores, strict=True)]
        rows = []
        for ranked in rank_documents(self.reranker, query, pages, top_k=top_k):
            row: dict[str, Any] = {"corpus_id": ranked.index, "score": ranked.page.fused_score}
            if return_documents:
                document = documents[ranked.index]
                row["text" if isinstance(document, str) else "image"] = document
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
    ) -> Floats | torch.Tensor | list[torch.Tensor]:
        """Score (query, page) pairs, or one pair; the pairs of one query are ranked together."""
        if prompt_name is not None:
            raise ScoreError(
                f"prompt {prompt_name!r}, wanted none: the prompt is part of what was stored and calibrated"
            )
        single = len(inputs) == 2 and isinstance(inputs[0], str)
        pairs: Sequence[Sequence[Any]] = [inputs] if single else inputs
        scores = score_pairs(self.reranker, [(query, _document(page)) for query, page in pairs])
        if convert_to_tensor:
            return torch.from_numpy(scores)[0] if single else torch.from_numpy(scores)
        if convert_to_numpy:
            return scores[0] if single else scores
        return list(torch.from_numpy(scores))


def _document(page: PageLike, score: float | None = None) -> LibraryDocument:
    if isinstance(page, str):
        return LibraryDocument((page,), score)
    return LibraryDocument((), score, lambda: page)
