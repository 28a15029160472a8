"""The compressor as LangChain uses it."""

import asyncio
from typing import Any

import pytest

from ridgerank.reranker.reranker import Reranker
from tests.integrations.conftest import QUERY

documents = pytest.importorskip("langchain_core.documents", reason="the [langchain] extra is not installed")
Document = documents.Document

from ridgerank.integrations.langchain import PageCompressor, PageRetriever  # noqa: E402


@pytest.mark.parametrize("named_by", ["metadata", "id", "content", "chunk"])
def test_documents_come_back_in_the_rerankers_order(reranker: Reranker, named_by: str) -> None:
    names = [f"report.pdf#{number}" for number in range(1, 8)]
    documents = {
        "metadata": [Document(page_content="some words", metadata={"page_id": name}) for name in names],
        "id": [Document(page_content="some words", id=reranker.store.find(name)) for name in names],
        "content": [Document(page_content=name) for name in names],
        "chunk": [  # its loaders count pages from 0
            Document(page_content="", metadata={"source": "in/report.pdf", "page": page}) for page in range(7)
        ],
    }[named_by]
    compressor = PageCompressor(reranker=reranker, top_n=4)
    ranked = compressor.compress_documents(documents, QUERY)
    assert asyncio.run(compressor.acompress_documents(documents, QUERY)) == ranked
    assert list(compressor.compress_documents([], QUERY)) == []
    expected = reranker.rank(QUERY, names, top_k=4, order="retriever").pages
    assert [documents.index(_without_score(document)) for document in ranked] == [
        names.index(page.reference) for page in expected
    ]
    scores = [page.relevance_score for page in expected]
    assert [document.metadata["relevance_score"] for document in ranked] == scores
    assert all("relevance_score" not in document.metadata for document in documents)


def test_the_retrievers_scores_are_read_from_the_metadata(reranker: Reranker) -> None:
    pairs = [("report.pdf#1", 3.0), ("report.pdf#2", 1.0), ("report.pdf#3", 2.0)]
    documents = [Document(page_content="", metadata={"page": name, "bm25": score}) for name, score in pairs]
    compressor = PageCompressor(reranker=reranker, page_key="page", score_key="bm25")
    ranked = compressor.compress_documents(documents, QUERY)
    expected = [(page.reference, page.relevance_score) for page in reranker.rank(QUERY, pairs).pages]
    assert [
        (document.metadata["page"], document.metadata["relevance_score"]) for document in ranked
    ] == expected
    with pytest.raises(ValueError, match="top_k"):
        PageCompressor(reranker=reranker, top_k=3)


def _without_score(document: Any) -> Any:  # noqa: ANN401
    metadata = {key: value for key, value in document.metadata.items() if key != "relevance_score"}
    return document.model_copy(update={"metadata": metadata})


def test_the_retriever_gives_pages_with_their_text(reranker: Reranker) -> None:
    retrieved = PageRetriever(reranker=reranker, k=3, candidates=6).invoke(QUERY)
    expected = reranker.search(QUERY, k=6, top_k=3).pages
    assert [document.metadata["reference"] for document in retrieved] == [page.reference for page in expected]
    stored = reranker.store.pages([page.page_id for page in expected])
    assert [document.page_content for document in retrieved] == [page.text for page in stored]
    again = PageCompressor(reranker=reranker).compress_documents(retrieved, QUERY)
    assert {document.id for document in again} == {page.page_id for page in expected}
