"""The ranker as a component of Haystack's pipelines."""

import pytest

from ridgerank.reranker.reranker import Reranker
from tests.integrations.conftest import QUERY

haystack = pytest.importorskip("haystack", reason="the [haystack] extra is not installed")

from ridgerank.integrations.haystack import PageDocumentRanker  # noqa: E402


def test_a_pipeline_ranks_chunks_by_their_pages(reranker: Reranker) -> None:
    chunks = [
        haystack.Document(
            content=f"chunk {number}", meta={"file_path": "in/report.pdf", "page_number": number}
        )
        for number in range(1, 7)
    ]
    pipeline = haystack.Pipeline()
    pipeline.add_component("ranker", PageDocumentRanker(reranker, top_k=4))
    answer = pipeline.run({"ranker": {"query": QUERY, "documents": chunks}})["ranker"]["documents"]
    expected = reranker.rank(
        QUERY, [f"report.pdf#{number}" for number in range(1, 7)], top_k=4, order="retriever"
    ).pages
    assert [f"report.pdf#{document.meta['page_number']}" for document in answer] == [
        page.reference for page in expected
    ]
    assert [document.score for document in answer] == [page.relevance_score for page in expected]
    assert all(chunk.score is None for chunk in chunks)


def test_a_pipeline_is_written_and_read_again(reranker: Reranker) -> None:
    pipeline = haystack.Pipeline()
    pipeline.add_component("ranker", PageDocumentRanker(reranker, top_k=3, page_key="page"))
    written = pipeline.dumps()
    read = haystack.Pipeline.loads(written, allowed_modules=["ridgerank.integrations.haystack"])
    ranker = read.get_component("ranker")
    assert (ranker.store, ranker.top_k, ranker.page_key) == (reranker.store.uri, 3, "page")
