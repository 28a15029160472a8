"""LangChain: a retriever, and a document compressor for `ContextualCompressionRetriever` and its like."""

from collections.abc import Sequence

from langchain_core.callbacks import CallbackManagerForRetrieverRun, Callbacks
from langchain_core.documents import BaseDocumentCompressor, Document
from langchain_core.retrievers import BaseRetriever
from pydantic import ConfigDict

from ridgerank.documents.sources import chunk_page_names
from ridgerank.integrations import matching
from ridgerank.reranker.candidates import Document as RankedDocument
from ridgerank.reranker.reranker import CANDIDATES, Reranker

FIRST_PAGE = 0
"""LangChain's loaders count a document's pages from 0."""


class PageRetriever(BaseRetriever):  # type: ignore[misc]
    """Finds pages and reranks them: `k` documents with the page's text, best first.

    `metadata` has `source` and `page` as LangChain's loaders have them (from 0), `page_id`, `reference`,
    `relevance_score` and the two scores behind it. `candidates` pages are reranked.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    reranker: Reranker
    k: int = 5
    candidates: int = CANDIDATES
    min_score: float | None = None

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, k: int | None = None
    ) -> list[Document]:
        retrieved = matching.retrieve_pages(
            self.reranker, query, k=k or self.k, candidates=self.candidates, min_score=self.min_score
        )
        return [
            Document(
                page_content=text,
                metadata=matching.page_metadata(page, first_page=FIRST_PAGE),
                id=page.page_id,
            )
            for page, text in retrieved
        ]


class PageCompressor(BaseDocumentCompressor):  # type: ignore[misc]
    """Keeps the `top_n` best documents, best first, their score from 0 to 1 in `metadata["relevance_score"]`.

    A document names its page in `metadata[page_key]`, by `source` and `page` (from `first_page`), by its id,
    or by its content; else its content is read. The retriever's scores are taken from `metadata[score_key]`,
    or from where its library puts them (`matching.SCORE_KEYS`); without scores the order is the retriever's.
    `retriever` is its name: the calibrated weight is for one.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    reranker: Reranker
    top_n: int | None = None
    page_key: str = matching.PAGE_KEY
    score_key: str | None = None
    first_page: int = FIRST_PAGE
    retriever: str | None = None

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> list[Document]:
        """Rank documents; the originals are not changed."""
        pages = [
            RankedDocument(
                (
                    document.metadata.get(self.page_key),
                    *chunk_page_names(document.metadata, first_page=self.first_page),
                    document.id,
                    document.page_content,
                ),
                document.page_content,
                score=matching.score_in(document.metadata, self.score_key),
            )
            for document in documents
        ]
        ranking = matching.rank_documents(
            self.reranker, query, pages, top_k=self.top_n, order="retriever", retriever=self.retriever
        )
        return [_with_score(documents[index], page.relevance_score) for index, page in ranking]


def _with_score(document: Document, score: float) -> Document:
    return document.model_copy(update={"metadata": {**document.metadata, matching.RELEVANCE_KEY: score}})
