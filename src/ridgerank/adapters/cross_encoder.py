"""The interface of a sentence-transformers `CrossEncoder`: `rank` and `predict`. Needs no other package."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import torch
from PIL.Image import Image

from ridgerank.adapters.matching import Offered, rank_offered, score_pairs
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
        """Rank pages: `corpus_id` (the place in `documents`) and `score`, best first.

        `scores` are the retriever's; without them the retriever of the calibration scores the pages. With
        `return_documents` a page comes back under `text`, an image under `image`.
        """
        if scores is not None and len(scores) != len(documents):
            raise ScoreError(f"{len(scores)} scores for {len(documents)} documents; wanted one each")
        given = [None] * len(documents) if scores is None else [float(score) for score in scores]
        offered = [_offered(page, score) for page, score in zip(documents, given, strict=True)]
        found = []
        for placed in rank_offered(self.reranker, query, offered, top_k=top_k):
            row: dict[str, Any] = {"corpus_id": placed.place, "score": placed.page.fused_score}
            if return_documents:
                document = documents[placed.place]
                row["text" if isinstance(document, str) else "image"] = document
            found.append(row)
        return found

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
        scores = score_pairs(self.reranker, [(query, _offered(page)) for query, page in pairs])
        if convert_to_tensor:
            return torch.from_numpy(scores)[0] if single else torch.from_numpy(scores)
        if convert_to_numpy:
            return scores[0] if single else scores
        return list(torch.from_numpy(scores))


def _offered(page: PageLike, score: float | None = None) -> Offered:
    if isinstance(page, str):
        return Offered((page,), score)
    return Offered((), score, lambda: page)
