"""Guided Query Refinement: the query's vectors move, at test time, towards the consensus of two retrievers.

    s(z, page) = 1/n Σᵢ maxⱼ ⟨zᵢ, pageⱼ⟩, the mean over the query's n vectors
    p₁ = softmax(s(z, ·)/T), p₂ = softmax(s₂/T) over a pool;  p = (1 − α) p₁⁽⁰⁾ + α p₂
    z ← Adam on KL(p ‖ p₁(z)), from the query's vectors z⁽⁰⁾

Gradients pass through the page retriever's MaxSim only, so that the text retriever's scores count as far as
the pages' vectors can express them. Score, loss, pool, learning rates and steps are those of the code that
was published with the method; a test compares with numbers that it gave.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

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
from ridgerank.retrievers.encoders import MultiVectorEncoder
from ridgerank.retrievers.late_interaction import LateInteraction
from ridgerank.store.page_store import PageStore

LEARNING_RATES = (1e-5, 5e-5, 1e-4, 5e-4, 1e-3, 5e-3)
STEPS = (10, 25, 50)
GRID = tuple(product(LEARNING_RATES, STEPS))
"""Learning rate and steps, in the order in which the authors try them; the first of the best is chosen."""
_LOG_FLOOR = 1e-8
"""Added to both probabilities of the loss, as published."""


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


class PagePool:
    """The vectors of a pool's pages, padded to one tensor."""

    def __init__(self, pages: Sequence[NDArray[np.float16]], device: torch.device) -> None:
        vectors = [torch.tensor(page, dtype=torch.float32, device=device) for page in pages]
        self._padded = pad_sequence(vectors, batch_first=True)
        self._absent = pad_sequence(
            [torch.zeros(len(page), dtype=torch.bool, device=device) for page in vectors],
            batch_first=True,
            padding_value=True,
        )

    def mean_maxsim(self, queries: Tensor) -> Tensor:
        """(queries, tokens, dim) → (queries, pages): MaxSim divided by the number of query vectors."""
        products = torch.einsum("qtd,pvd->qtpv", queries, self._padded)
        return products.masked_fill(self._absent, float("-inf")).max(dim=3).values.mean(dim=1)


def refine_together(
    query: Tensor,
    pool: PagePool,
    guidance: Floats,
    settings: RefinementSettings,
    *,
    learning_rates: Sequence[float],
    steps: Sequence[int],
) -> list[Tensor]:
    """The query (tokens, dim) moved under every learning rate and number of steps, in their product's order.

    Every learning rate moves a copy of its own, to the largest number of steps; smaller numbers are read on
    the way.
    """
    temperature = settings.temperature
    copies = [query.detach().clone().float().requires_grad_(True) for _ in learning_rates]
    with torch.no_grad():
        initial = torch.softmax(pool.mean_maxsim(copies[0][None])[0] / temperature, dim=0)
        scores = torch.tensor(guidance, dtype=torch.float32, device=query.device)
        consensus = (1.0 - settings.mixture) * initial
        consensus = consensus + settings.mixture * torch.softmax(scores / temperature, dim=0)
    groups = [{"params": [z], "lr": rate} for z, rate in zip(copies, learning_rates, strict=True)]
    optimizer = torch.optim.Adam(groups)
    moved = {0: [z.detach().clone() for z in copies]}
    for step in range(1, max(steps) + 1):
        optimizer.zero_grad()
        current = torch.softmax(pool.mean_maxsim(torch.stack(copies)) / temperature, dim=1)
        ratio = (consensus + _LOG_FLOOR) / (current + _LOG_FLOOR)
        divergence = (consensus * ratio.log()).sum(dim=1)
        divergence.sum().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if step in steps:
            moved[step] = [z.detach().clone() for z in copies]
    return [moved[count][row] for row, count in product(range(len(copies)), steps)]


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
        page_ids = self._find_pool(query)
        [refined] = self._refine(query, page_ids, self._read(page_ids), self.settings)
        return _scores(refined, self._read([candidate.page_id for candidate in candidates]))

    def search(self, query: str, *, steps: int | None = None) -> list[Candidate]:
        """The pool by the refined query, best first: what the method itself returns, at every depth."""
        settings = self.settings if steps is None else replace(self.settings, steps=steps)
        page_ids = self._find_pool(query)
        pool = self._read(page_ids)
        [refined] = self._refine(query, page_ids, pool, settings)
        return top_candidates(page_ids, _scores(refined, pool), len(page_ids))

    def search_grid(self, query: str) -> tuple[list[str], Floats]:
        """The pool, and its scores (settings, pages) under every setting of `GRID`."""
        page_ids = self._find_pool(query)
        pool = self._read(page_ids)
        refined = self._refine(query, page_ids, pool, self.settings, LEARNING_RATES, STEPS)
        return page_ids, np.stack([_scores(each, pool) for each in refined])

    def _refine(
        self,
        query: str,
        page_ids: Sequence[str],
        pool: PagePool,
        settings: RefinementSettings,
        learning_rates: Sequence[float] = (),
        steps: Sequence[int] = (),
    ) -> list[Tensor]:
        [vectors] = self._encoder.embed_queries([query])
        return refine_together(
            vectors,
            pool,
            self._text.score(query, page_ids),
            settings,
            learning_rates=learning_rates or (settings.learning_rate,),
            steps=steps or (settings.steps,),
        )

    def _find_pool(self, query: str) -> list[str]:
        candidates = [
            *self._pages.search(query, self.settings.pool),
            *self._text.search(query, self.settings.pool),
        ]
        return list(dict.fromkeys(candidate.page_id for candidate in candidates))

    def _read(self, page_ids: Sequence[str]) -> PagePool:
        block = self._column.take(page_ids)
        pages = np.split(block.vectors, np.cumsum(block.lengths)[:-1])
        return PagePool(pages, torch.device(self._encoder.device))


def _scores(refined: Tensor, pool: PagePool) -> Floats:
    scores: Floats = pool.mean_maxsim(refined[None])[0].double().cpu().numpy()
    return scores
