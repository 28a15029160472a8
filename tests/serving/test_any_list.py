"""Whatever list is sent is answered: chunks, mixed lists, unknown and empty documents, other retrievers."""

from typing import Any

import pytest
from fastapi.testclient import TestClient

from ridgerank.reranker.reranker import Reranker

QUERY = "revenue of Norway"
CHUNKS = ["The revenue of Norway rose.", "The debt of Peru fell.", "Norway exports energy."]


def rerank(client: TestClient, documents: list[Any], **fields: object) -> dict[str, Any]:
    response = client.post("/v2/rerank", json={"query": QUERY, "documents": documents, **fields})
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    scores = [result["relevance_score"] for result in answer["results"]]
    assert scores == sorted(scores, reverse=True)
    assert all(0 <= score <= 1 for score in scores)
    return answer


@pytest.fixture
def stored(text_reranker: Reranker) -> list[str]:
    return text_reranker.store.references(text_reranker.store.page_ids()[:3])


def test_unknown_and_empty_documents_stand_last_or_are_left_out_or_an_error(
    text_client: TestClient, stored: list[str]
) -> None:
    documents = ["gone.pdf#3", stored[0], "", CHUNKS[0], "http://example.org/"]
    kept = rerank(text_client, documents)
    assert [result["index"] for result in kept["results"]][2:] == [0, 2, 4]
    assert kept["reranked"]
    assert any("documents[2]: is empty" in reason for reason in kept["reasons"])
    dropped = rerank(text_client, documents, on_missing="drop")
    assert sorted(result["index"] for result in dropped["results"]) == [1, 3]
    refused = text_client.post(
        "/v2/rerank", json={"query": QUERY, "documents": documents, "on_missing": "error"}
    )
    assert (refused.status_code, refused.json()["code"]) == (404, "page_not_found")


def test_what_is_cut_and_whose_scores_came_is_said(text_client: TestClient) -> None:
    answer = rerank(text_client, CHUNKS, retriever_scores=[3.0, 1.0, 2.0], max_tokens_per_doc=2)
    assert answer["weight_source"] == "default"
    assert "the scores are of an unnamed retriever" in " ".join(answer["reasons"])
    assert "texts were cut after 2 tokens" in " ".join(answer["reasons"])
    by_order = rerank(text_client, CHUNKS, order="retriever", retriever="bm25")
    ranks = sorted(by_order["results"], key=lambda result: result["index"])
    scores = [result["retriever_score"] for result in ranks]
    assert scores == sorted(scores, reverse=True)
    assert "unnamed" not in " ".join(by_order["reasons"])
