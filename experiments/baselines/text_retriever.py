"""A retriever over page text as a baseline: BM25, or a dense embedder such as Linq-Embed."""

from collections.abc import Sequence

from experiments.baselines.base import Baseline
from ridgerank.ragged import Floats
from ridgerank.records import Candidate
from ridgerank.retrievers.base import Retriever

LINQ_EMBED = "dense:Linq-AI-Research/Linq-Embed-Mistral"
"""The paper's text retriever, as `load_retriever` names it; its query instruction is put before the query."""


class TextRetriever(Baseline):
    """The text retriever's own scores of the candidates; `hybrid` fuses them with the page retriever's."""

    def __init__(self, retriever: Retriever, *, name: str) -> None:
        self.name = name
        self._retriever = retriever

    def score(self, query: str, candidates: Sequence[Candidate]) -> Floats:
        """The score each page would have in a search."""
        return self._retriever.score(query, [candidate.page_id for candidate in candidates])
