"""LangChain: a document compressor, for `ContextualCompressionRetriever` and anything else that takes one."""

import asyncio
from collections.abc import Sequence

from ridgerank.adapters.matching import PAGE_KEY, SCORE_KEY, LibraryDocument, rank_documents, score_in
from ridgerank.errors import ExtraMissing
from ridgerank.ranking.reranker import Reranker

try:
    from langchain_core.callbacks import Callbacks
    from langchain_core.documents import BaseDocumentCompressor, Document
    from pydantic import ConfigDict
except ModuleNotFoundError as error:
    raise ExtraMissing("langchain-core is not installed: `pip install 'ridgerank[langchain]'`") from error

RELEVANCE_KEY = "relevance_score"
"""Where LangChain's own rerankers put their score."""


class PageCompressor(BaseDocumentCompressor):  # type: ignore[misc]
    """Keeps the `top_n` best documents, best first, their fused score in `metadata["relevance_score"]`.

    A document names its page in `metadata[page_key]`, by its id, or by its content. The retriever's scores
    are taken from `metadata[score_key]`; where there are none, the calibration's retriever gives them.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    reranker: Reranker
    top_n: int | None = None
    page_key: str = PAGE_KEY
    score_key: str = SCORE_KEY

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> list[Document]:
        """Rank documents; the originals are not changed."""
        pages = [
            LibraryDocument(
                (document.metadata.get(self.page_key), document.id, document.page_content),
                score_in(document.metadata, self.score_key),
            )
            for document in documents
        ]
        ranking = rank_documents(self.reranker, query, pages, top_k=self.top_n)
        return [_with_score(documents[ranked.index], ranked.page.fused_score) for ranked in ranking]

    async def acompress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> list[Document]:
        """`compress_documents` in a thread of its own, so that the event loop goes on."""
        return await asyncio.to_thread(self.compress_documents, documents, query, callbacks)


def _with_score(document: Document, score: float) -> Document:
    return document.model_copy(update={"metadata": {**document.metadata, RELEVANCE_KEY: score}})
