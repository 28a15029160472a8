"""The ranker in the hands of `rerankers`."""

import asyncio
import base64
from pathlib import Path

import pytest

from ridgerank.errors import ScoreError
from ridgerank.reranker.reranker import Reranker
from tests.integrations.conftest import QUERY, png, scan

library = pytest.importorskip("rerankers", reason="the [rerankers] extra is not installed")
Document = library.Document

from rerankers.models.ranker import BaseRanker  # noqa: E402
from rerankers.results import RankedResults  # noqa: E402

from ridgerank.integrations.rerankers import PageRanker  # noqa: E402
from ridgerank.reranker.candidates import Document as RankedDocument  # noqa: E402

NAMES = [f"report.pdf#{number}" for number in range(1, 8)]


def test_results_are_the_rerankers_ranking(reranker: Reranker) -> None:
    ranker = PageRanker(reranker)
    assert isinstance(ranker, BaseRanker)
    results = ranker.rank(QUERY, NAMES)
    assert isinstance(results, RankedResults)
    expected = [
        (page.reference, page.relevance_score, page.rank)
        for page in reranker.rank(QUERY, NAMES, order="retriever").pages
    ]
    assert [(result.text, result.score, result.rank) for result in results] == expected
    assert [NAMES[result.doc_id] for result in results] == [name for name, _, _ in expected]
    assert [result.text for result in results.top_k(2)] == [name for name, _, _ in expected[:2]]
    again = asyncio.run(ranker.rank_async(QUERY, NAMES))
    assert [result.score for result in again] == [result.score for result in results]


def test_documents_name_pages_by_metadata_id_or_text(reranker: Reranker) -> None:
    in_order = reranker.rank(QUERY, NAMES, order="retriever")
    expected = [page.relevance_score for page in in_order.pages]
    by_metadata = [Document("words", metadata={"page_id": name}) for name in NAMES]
    by_id = [Document("words", doc_id=reranker.store.find(name)) for name in NAMES]
    ranker = PageRanker(reranker)
    for docs in (by_metadata, by_id):
        assert [result.score for result in ranker.rank(QUERY, docs)] == expected
    words = ["words"] * len(NAMES)
    assert [result.score for result in ranker.rank(QUERY, words, doc_ids=NAMES)] == expected
    named = ranker.rank(QUERY, words, metadata=[{"page_id": name} for name in NAMES])
    assert [result.score for result in named] == expected
    assert all(document.doc_id is None for document in by_metadata)
    with pytest.raises(ScoreError, match="1 doc_ids for 7 documents"):
        ranker.rank(QUERY, words, doc_ids=["report.pdf#1"])


def test_scores_and_images_are_taken(reranker: Reranker, new_scan: Path) -> None:
    new = scan("a page in no store")
    stored = RankedDocument(("report.pdf#1",), score=2.0)
    documents = [RankedDocument(image=lambda: new, score=1.0), stored]
    expected = reranker.rank(QUERY, documents)
    encoded = base64.b64encode(png(new)).decode()
    for form in ({"base64": encoded}, {"image_path": str(new_scan)}):
        docs = [
            Document(document_type="image", metadata={"score": 1.0}, **form),
            Document("report.pdf#1", metadata={"score": 2.0}),
        ]
        results = PageRanker(reranker).rank(QUERY, docs)
        assert [result.score for result in results] == [page.relevance_score for page in expected.pages]


def test_one_page_alone_gets_the_readouts_score(reranker: Reranker) -> None:
    [page] = reranker.rank(QUERY, [("report.pdf#1", 1.0)]).pages
    assert PageRanker(reranker).score(QUERY, "report.pdf#1") == page.readout_score
