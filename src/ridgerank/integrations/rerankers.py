"""The `rerankers` library: a ranker object that takes its documents and gives its results."""

from collections.abc import Sequence
from copy import copy
from typing import Any, TypeAlias

from rerankers.documents import Document
from rerankers.models.ranker import BaseRanker
from rerankers.results import RankedResults, Result

from ridgerank.errors import ScoreError
from ridgerank.integrations import matching
from ridgerank.reranker.candidates import Document as RankedDocument
from ridgerank.reranker.reranker import Reranker

Documents: TypeAlias = str | Document | Sequence[str | Document]


class PageRanker(BaseRanker):  # type: ignore[misc]
    """A `Reranker` where a ranker of `rerankers` is expected; `rank_async` comes with the library.

    A document names its page in `metadata[page_key]`, by its `doc_id`, or by its text; else its
    text is read, or its image, from `base64` or `image_path`. The retriever's scores are taken from
    `metadata[score_key]`, or from where its library puts them; without scores the order is the retriever's.
    `retriever` is its name.
    """

    def __init__(
        self,
        reranker: Reranker,
        *,
        page_key: str = matching.PAGE_KEY,
        score_key: str | None = None,
        retriever: str | None = None,
    ) -> None:
        self.reranker = reranker
        self.page_key = page_key
        self.score_key = score_key
        self.retriever = retriever

    def rank(
        self,
        query: str,
        docs: Documents,
        doc_ids: Sequence[str] | Sequence[int] | None = None,
        metadata: Sequence[dict[str, Any]] | None = None,
    ) -> RankedResults:
        """Rank documents, best first, with ranks from 1 and scores from 0 to 1."""
        documents = _to_documents(docs, doc_ids, metadata)
        pages = [self._document(document) for document in documents]
        ranking = matching.rank_documents(
            self.reranker, query, pages, order="retriever", retriever=self.retriever
        )
        results = [
            Result(document=documents[index], score=page.relevance_score, rank=rank)
            for rank, (index, page) in enumerate(ranking, start=1)
        ]
        return RankedResults(results=results, query=query, has_scores=True)

    def score(self, query: str, doc: str | Document) -> float:
        """The readout's score of one page: a fused score needs other pages to compare with."""
        [document] = _to_documents(doc, None, None)
        pages = [self._document(document)]
        [(_, page)] = matching.rank_documents(self.reranker, query, pages, weight=1.0, on_missing="error")
        return page.readout_score

    def _document(self, document: Document) -> RankedDocument:
        names = (document.metadata.get(self.page_key), document.doc_id, document.text)
        image = matching.image_loader(document.base64, document.image_path)
        return RankedDocument(
            names, document.text, image, matching.score_in(document.metadata, self.score_key)
        )


def _to_documents(
    docs: Documents, doc_ids: Sequence[str] | Sequence[int] | None, metadata: Sequence[dict[str, Any]] | None
) -> list[Document]:
    """New documents of the library's class, numbered from 0 where they have no id."""
    inputs = [docs] if isinstance(docs, str | Document) else list(docs)
    for name, values in (("doc_ids", doc_ids), ("metadata", metadata)):
        if values is not None and len(values) != len(inputs):
            raise ScoreError(f"{len(values)} {name} for {len(inputs)} documents; expected one each")
    documents = [Document(each) if isinstance(each, str) else copy(each) for each in inputs]
    for index, document in enumerate(documents):
        number = index if document.doc_id is None else document.doc_id
        document.doc_id = number if doc_ids is None else doc_ids[index]
        document.metadata = document.metadata if metadata is None else metadata[index]
    return documents
