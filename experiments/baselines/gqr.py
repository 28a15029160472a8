"""Guided Query Refinement: the query's vectors move, at test time, towards the consensus of two retrievers.

    p₁ = softmax(s(z, ·)/T), p₂ = softmax(s₂/T) over a pool C;  p = (1 − α) p₁⁽⁰⁾ + α p₂
    z ← Adam on KL(p ‖ p₁(z)), from the query's vectors z⁽⁰⁾

Gradients pass through the page retriever's MaxSim only, so that the text retriever's scores count as far as
the pages' vectors can express them. Settings are those of the code published with the method.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from experiments.baselines.base import Baseline
from ridgerank.errors import RetrieverError
from ridgerank.ragged import Floats
from ridgerank.records import Candidate
from ridgerank.retrievers.base import Retriever, top_candidates
from ridgerank.retrievers.encoders.base import MultiVectorEncoder
from ridgerank.retrievers.late_interaction import LateInteraction
from ridgerank.retrievers.maxsim import maxsim
from ridgerank.store.page_store import PageStore

LEARNING_RATES = (5e-6, 1e-5, 3e-5, 5e-5, 1e-4, 3e-4, 5e-4, 1e-3, 3e-3, 5e-3)
"""What the authors choose from, on held-out queries."""


@dataclass(frozen=True, slots=True)
class RefinementSettings:
    """How far and how fast a query moves."""

    pool: int = 10
    """Best pages of each retriever; their union is the pool."""
    steps: int = 25
    learning_rate: float = 1e-3
    mixture: float = 0.5
    """α: the text retriever's share in the consensus."""
    temperature: float = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class RefinedQuery:
    """A query that has moved."""

    vectors: Tensor
    """(tokens, dim)."""
    losses: tuple[float, ...]
    """KL before every step."""


def refine_query(
    query: Tensor,
    pages: Sequence[NDArray[np.float16]],
    guidance: Floats,
    settings: RefinementSettings | None = None,
) -> RefinedQuery:
    """Move a query's vectors (tokens, dim), given s₂ (pages,) and each page's vectors (vectors, dim)."""
    settings = settings or RefinementSettings()
    device = query.device
    vectors = [torch.tensor(page, dtype=torch.float32, device=device) for page in pages]
    padded = pad_sequence(vectors, batch_first=True)
    absent = pad_sequence(
        [torch.zeros(len(page), dtype=torch.bool, device=device) for page in vectors],
        batch_first=True,
        padding_value=True,
    )

    def log_probabilities(z: Tensor) -> Tensor:
        products = torch.einsum("td,pvd->tpv", z, padded).masked_fill(absent, float("-inf"))
        return torch.log_softmax(products.amax(dim=2).sum(dim=0) / settings.temperature, dim=0)

    moving = query.detach().clone().float().requires_grad_(True)
    with torch.no_grad():
        initial = log_probabilities(moving).exp()
        other = torch.softmax(
            torch.tensor(guidance, dtype=torch.float32, device=device) / settings.temperature, dim=0
        )
        consensus = (1.0 - settings.mixture) * initial + settings.mixture * other
        entropy = torch.xlogy(consensus, consensus).sum()
    optimizer = torch.optim.Adam([moving], lr=settings.learning_rate)
    losses = []
    for _ in range(settings.steps):
        optimizer.zero_grad()
        # A page of probability 0 in the consensus adds nothing, however unlikely the query makes it.
        loss = entropy - (consensus * log_probabilities(moving)).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(float(loss.detach()))
    return RefinedQuery(moving.detach(), tuple(losses))


class GuidedQueryRefinement(Baseline):
    """A late interaction retriever whose queries are refined by a text retriever's scores."""

    def __init__(
        self,
        encoder: MultiVectorEncoder,
        store: PageStore,
        text: Retriever,
        *,
        name: str = "GQR",
        settings: RefinementSettings | None = None,
    ) -> None:
        self.name = name
        self.settings = settings or RefinementSettings()
        self._encoder = encoder
        self._pages = LateInteraction(encoder, store)
        self._text = text
        column = store.vectors
        if column is None:
            raise RetrieverError(
                f"the page store at {store.uri} holds no vectors; GQR moves queries among them"
            )
        self._column = column

    def score(self, query: str, candidates: Sequence[Candidate]) -> Floats:
        """Score given pages by the refined query; it was refined over the pool, not over them."""
        refined, _ = self._refine(query)
        return self._maxsim(refined, [candidate.page_id for candidate in candidates])

    def search(self, query: str) -> list[Candidate]:
        """The pool by the refined query, best first: what the method itself returns, at every depth."""
        refined, pool = self._refine(query)
        return top_candidates(pool, self._maxsim(refined, pool), len(pool))

    def _refine(self, query: str) -> tuple[Tensor, list[str]]:
        pool = self._pool(query)
        block = self._column.take(pool)
        pages = np.split(block.vectors, np.cumsum(block.lengths)[:-1])
        [vectors] = self._encoder.embed_queries([query])
        return refine_query(vectors, pages, self._text.score(query, pool), self.settings).vectors, pool

    def _pool(self, query: str) -> list[str]:
        candidates = [
            *self._pages.search(query, self.settings.pool),
            *self._text.search(query, self.settings.pool),
        ]
        return list(dict.fromkeys(candidate.page_id for candidate in candidates))

    def _maxsim(self, query: Tensor, page_ids: Sequence[str]) -> Floats:
        block = self._column.take(page_ids)
        scores: Floats = maxsim([query], block.vectors, block.lengths)[0]
        return scores
