"""Haystack: a ranker component for pipelines."""

from dataclasses import replace
from typing import Any

from haystack import Document, component

from ridgerank.documents.sources import chunk_page_names
from ridgerank.integrations.matching import PAGE_KEY, rank_documents
from ridgerank.reranker.candidates import Document as RankedDocument
from ridgerank.reranker.reranker import Reranker


@component
class PageDocumentRanker:
    """Keeps the `top_k` best documents, best first, with scores from 0 to 1.

    A document names its page in `meta[page_key]`, by `file_path` (or `source`) and `page_number`, by its id,
    or by its content; else its content is read. The score it comes with is the retriever's; without scores
    the order is. `retriever` is that retriever's name. `warm_up` opens the store.
    """

    def __init__(
        self,
        store: str | Reranker,
        top_k: int | None = None,
        page_key: str = PAGE_KEY,
        retriever: str | None = None,
    ) -> None:
        """Rank with a calibrated store, named or opened already."""
        self.store = store if isinstance(store, str) else store.store.uri
        self.top_k = top_k
        self.page_key = page_key
        self.retriever = retriever
        self._reranker = None if isinstance(store, str) else store

    def warm_up(self) -> Reranker:
        """Open the store, once."""
        if self._reranker is None:
            self._reranker = Reranker.open(self.store)
        return self._reranker

    @component.output_types(documents=list[Document])  # type: ignore[untyped-decorator]
    def run(self, query: str, documents: list[Document], top_k: int | None = None) -> dict[str, Any]:
        """Rank documents; the originals are not changed."""
        ranking = rank_documents(
            self.warm_up(),
            query,
            [self._document(document) for document in documents],
            top_k=top_k or self.top_k,
            order="retriever",
            retriever=self.retriever,
        )
        ranked = [replace(documents[index], score=page.relevance_score) for index, page in ranking]
        return {"documents": ranked}

    def _document(self, document: Document) -> RankedDocument:
        chunk_names = chunk_page_names(document.meta)
        names = (document.meta.get(self.page_key), *chunk_names, document.id, document.content)
        return RankedDocument(names, document.content, score=document.score)
