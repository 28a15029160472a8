"""The compressor as LangChain uses it."""

import asyncio
from typing import Any

import pytest

from ridgerank.errors import ScoreError, StoreError
from ridgerank.reranker.reranker import Reranker
from tests.integrations.conftest import QUERY

documents = pytest.importorskip("langchain_core.documents", reason="the [langchain] extra is not installed")
Document = documents.Document

from ridgerank.integrations.langchain import PageCompressor, PageRetriever  # noqa: E402


def test_it_is_a_compressor_of_langchain(reranker: Reranker) -> None:
    assert isinstance(PageCompressor(reranker=reranker), documents.BaseDocumentCompressor)
    with pytest.raises(ValueError, match="top_k"):
        PageCompressor(reranker=reranker, top_k=3)


@pytest.mark.parametrize("named_by", ["metadata", "id", "content"])
def test_documents_come_back_in_the_rerankers_order(reranker: Reranker, named_by: str) -> None:
    names = [f"report.pdf#{number}" for number in range(1, 8)]
    documents = {
        "metadata": [Document(page_content="some words", metadata={"page_id": name}) for name in names],
        "id": [Document(page_content="some words", id=reranker.store.find(name)) for name in names],
        "content": [Document(page_content=name) for name in names],
    }[named_by]
    ranked = PageCompressor(reranker=reranker, top_n=4).compress_documents(documents, QUERY)
    expected = reranker.rank(QUERY, names, top_k=4).pages
    assert [documents.index(_without_score(document)) for document in ranked] == [
        names.index(page.reference) for page in expected
    ]
    scores = [page.fused_score for page in expected]
    assert [document.metadata["relevance_score"] for document in ranked] == scores
    assert all("relevance_score" not in document.metadata for document in documents)


def test_the_retrievers_scores_are_read_from_the_metadata(reranker: Reranker) -> None:
    pairs = [("report.pdf#1", 3.0), ("report.pdf#2", 1.0), ("report.pdf#3", 2.0)]
    documents = [Document(page_content="", metadata={"page": name, "bm25": score}) for name, score in pairs]
    compressor = PageCompressor(reranker=reranker, page_key="page", score_key="bm25")
    ranked = compressor.compress_documents(documents, QUERY)
    expected = [(page.reference, page.fused_score) for page in reranker.rank(QUERY, pairs).pages]
    assert [
        (document.metadata["page"], document.metadata["relevance_score"]) for document in ranked
    ] == expected
    with pytest.raises(ScoreError, match="1 of 4 candidates have no score"):
        compressor.compress_documents([*documents, Document(page_content="report.pdf#4")], QUERY)


def test_ranked_again_a_ranking_stays_as_it_is(reranker: Reranker) -> None:
    documents = [Document(page_content=f"report.pdf#{number}") for number in range(1, 6)]
    compressor = PageCompressor(reranker=reranker)
    once = compressor.compress_documents(documents, QUERY)
    twice = compressor.compress_documents(once, QUERY)
    assert [document.page_content for document in twice] == [document.page_content for document in once]
    scores = [[document.metadata["relevance_score"] for document in ranked] for ranked in (once, twice)]
    assert scores[0] == pytest.approx(scores[1])


def test_the_async_twin_gives_the_same(reranker: Reranker) -> None:
    documents = [Document(page_content=f"report.pdf#{number}") for number in range(1, 6)]
    compressor = PageCompressor(reranker=reranker)
    assert asyncio.run(compressor.acompress_documents(documents, QUERY)) == compressor.compress_documents(
        documents, QUERY
    )
    assert list(compressor.compress_documents([], QUERY)) == []


def test_it_runs_in_a_chain(reranker: Reranker) -> None:
    from langchain_core.runnables import RunnableLambda

    compressor = PageCompressor(reranker=reranker, top_n=1)
    documents = [Document(page_content=f"report.pdf#{number}") for number in range(1, 6)]
    chain = RunnableLambda(lambda query: (query, documents)) | (
        lambda pair: compressor.compress_documents(pair[1], pair[0])
    )
    assert chain.invoke(QUERY) == compressor.compress_documents(documents, QUERY)


def test_a_document_of_no_page_is_an_error(reranker: Reranker) -> None:
    with pytest.raises(StoreError, match="document 1 of 1 names no page"):
        PageCompressor(reranker=reranker).compress_documents([Document(page_content="words")], QUERY)


def _without_score(document: Any) -> Any:  # noqa: ANN401
    metadata = {key: value for key, value in document.metadata.items() if key != "relevance_score"}
    return document.model_copy(update={"metadata": metadata})


def test_chunks_of_its_loaders_lead_to_pages_counted_from_zero(reranker: Reranker) -> None:
    chunks = [
        Document(page_content=f"chunk {page}", metadata={"source": "in/report.pdf", "page": page})
        for page in range(6)
    ]
    ranked = PageCompressor(reranker=reranker).compress_documents(chunks, QUERY)
    expected = reranker.rank(QUERY, [f"report.pdf#{page + 1}" for page in range(6)]).pages
    assert [f"report.pdf#{document.metadata['page'] + 1}" for document in ranked] == [
        page.reference for page in expected
    ]


def test_the_retriever_gives_pages_with_their_text(reranker: Reranker) -> None:
    retrieved = PageRetriever(reranker=reranker, k=3, candidates=6).invoke(QUERY)
    expected = reranker.search(QUERY, k=6, top_k=3).pages
    assert [document.metadata["reference"] for document in retrieved] == [page.reference for page in expected]
    stored = reranker.store.pages([page.page_id for page in expected])
    assert [document.page_content for document in retrieved] == [page.text for page in stored]
    again = PageCompressor(reranker=reranker).compress_documents(retrieved, QUERY)
    assert {document.id for document in again} == {page.page_id for page in expected}
