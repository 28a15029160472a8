"""Clients people use already, against a running server."""

from collections.abc import Iterator
from typing import Any

import cohere
import pytest

from ridgerank.reranker.reranker import Reranker
from tests.serving.conftest import Corpus, MakeService, serve

KEY = "a-key-of-some-length"


@pytest.fixture
def address(make_service: MakeService) -> Iterator[str]:
    with serve(make_service(keys={KEY: None})) as running:
        yield running


def references(reranker: Reranker, count: int) -> list[str]:
    return [reranker.store.reference(page_id) for page_id in reranker.store.page_ids()[:count]]


@pytest.mark.parametrize("version", [1, 2])
def test_the_cohere_client_gets_our_ranking(
    address: str, reranker: Reranker, corpus: Corpus, version: int
) -> None:
    documents = references(reranker, 8)
    kind: Any = cohere.Client if version == 1 else cohere.ClientV2
    query = corpus.queries[0]
    with kind(api_key=KEY, base_url=address) as client:
        answer = client.rerank(model="rerank-v3.5", query=query, documents=documents, top_n=3)
    expected = reranker.rank(query, documents, top_k=3)
    assert [documents[result.index] for result in answer.results] == [
        page.reference for page in expected.pages
    ]
    assert answer.results[0].relevance_score >= answer.results[1].relevance_score
    assert answer.meta.api_version.version == str(version)


def test_the_cohere_client_sends_texts_and_gets_them_back(
    make_service: MakeService, text_reranker: Reranker
) -> None:
    texts = ["costs of Fenrow", "sales of Fenrow"]
    with (
        serve(make_service(text_reranker)) as address,
        cohere.Client(api_key=KEY, base_url=address) as client,
    ):
        answer = client.rerank(model="ridgerank", query="profit", documents=texts, return_documents=True)
    assert {result.document.text for result in answer.results if result.document is not None} == set(texts)


def test_the_cohere_client_is_told_of_a_wrong_key_and_a_page_there_is_not(address: str) -> None:
    with (
        cohere.ClientV2(api_key="wrong", base_url=address) as client,
        pytest.raises(cohere.UnauthorizedError),
    ):
        client.rerank(model="m", query="x", documents=["a.pdf#1"])
    with cohere.ClientV2(api_key=KEY, base_url=address) as client:
        answer = client.rerank(model="m", query="x", documents=["a.pdf#1"])
    assert [result.index for result in answer.results] == [0]
    assert "documents[0]: no page" in answer.meta.warnings[0]
