"""Requests and answers of other servers, to the letter where a dialect is set, and clients people use."""

import math
from collections.abc import Iterator
from typing import Any

import cohere
import pytest
from fastapi.testclient import TestClient

from ridgerank.reranker.reranker import Reranker
from tests.serving.conftest import Corpus, MakeService, client_of, png, serve

TEXTS = ["costs of Fenrow", "sales of Fenrow"]


def scores(client: TestClient, path: str = "/score", **body: object) -> list[float]:
    response = client.post(path, json=body)
    assert response.status_code == 200, response.text
    return [pair["score"] for pair in response.json()["data"]]


@pytest.mark.parametrize("path", ["/score", "/v1/score"])
def test_every_pair_of_words_for_queries_and_documents_gives_the_same_scores(
    client: TestClient, reranker: Reranker, corpus: Corpus, path: str
) -> None:
    queries, documents = list(corpus.queries[:2]), reranker.store.page_ids()[:2]
    expected = scores(client, path, queries=queries, documents=documents)
    for first, second in (("queries", "items"), ("text_1", "text_2"), ("data_1", "data_2")):
        assert scores(client, path, **{first: queries, second: documents}) == expected
    for body in ({"queries": queries}, {"text_1": queries, "data_2": documents}, {}):
        assert client.post(path, json=body).status_code == 422


def test_a_query_may_come_in_the_shapes_of_documents_and_an_image_is_refused(
    client: TestClient, reranker: Reranker, corpus: Corpus
) -> None:
    query, documents = corpus.queries[0], reranker.store.page_ids()[:2]
    expected = scores(client, queries=query, documents=documents)
    for shape in ({"content": [{"type": "text", "text": query}]}, {"text": query}):
        assert scores(client, queries=shape, documents=documents) == expected
    url = {"url": f"data:image/png;base64,{png()}"}
    image = {"content": [{"type": "image_url", "image_url": url}]}
    refused = client.post("/score", json={"queries": image, "documents": documents})
    assert (refused.status_code, refused.json()["code"]) == (422, "image_query")


def test_an_image_is_the_same_document_in_every_shape(client: TestClient, corpus: Corpus) -> None:
    uri = f"data:image/png;base64,{png('red')}"
    shapes = [
        uri,
        {"image": uri},
        {"image": png("red")},
        {"content": [{"type": "image_url", "image_url": {"url": uri}}]},
    ]
    assert len(set(scores(client, queries=corpus.queries[0], documents=shapes))) == 1


def test_a_model_that_reads_text_reads_the_one_that_comes_with_an_image(text_client: TestClient) -> None:
    uri = f"data:image/png;base64,{png()}"
    image, text = {"type": "image_url", "image_url": {"url": uri}}, {"type": "text", "text": TEXTS[0]}
    alone, both, as_fields = scores(
        text_client,
        queries="profit",
        documents=[TEXTS[0], {"content": [text, image]}, {"image": uri, "text": TEXTS[0]}],
    )
    assert alone == both == as_fields


def test_a_page_is_named_by_source_and_number(client: TestClient, reranker: Reranker, corpus: Corpus) -> None:
    reference = reranker.store.reference(reranker.store.page_ids()[0])
    name, _, number = reference.rpartition("#")
    documents = [{"source": f"/some/folder/{name}", "page": int(number)}, reference]
    body = {"query": corpus.queries[0], "documents": documents}
    results = client.post("/rerank", json=body).json()["results"]
    assert [result["reference"] for result in results] == [reference] * 2


def test_fields_of_other_servers_are_accepted_and_named(
    client: TestClient, reranker: Reranker, corpus: Corpus
) -> None:
    documents = reranker.store.page_ids()[:2]
    fields = {
        "max_tokens_per_query": 0,
        "instruction": "find pages",
        "chat_template_kwargs": {"instruction": "find pages"},
        "truncation_side": "left",
        "priority": 1,
    }
    body = {"query": corpus.queries[0], "documents": documents, "request_id": "mine", **fields}
    answer = client.post("/rerank", json=body).json()
    assert answer["id"] == "mine"
    assert all(field in " ".join(answer["meta"]["warnings"]) for field in fields)
    scored = client.post("/score", json={"queries": "x", "documents": documents, **fields}).json()
    assert all(field in " ".join(scored["warnings"]) for field in fields)
    negative = client.post("/rerank", json={**body, "max_tokens_per_doc": -5})
    assert "max_tokens_per_doc must be a non-negative integer" in negative.text


def test_without_activation_the_score_is_its_log_odds(
    client: TestClient, reranker: Reranker, corpus: Corpus
) -> None:
    body = {"query": corpus.queries[0], "documents": reranker.store.page_ids()[:4]}
    plain = client.post("/rerank", json={**body, "use_activation": True}).json()["results"]
    odds = client.post("/rerank", json={**body, "use_activation": False}).json()["results"]
    assert [result["index"] for result in plain] == [result["index"] for result in odds]
    for with_activation, without in zip(plain, odds, strict=True):
        assert 1 / (1 + math.exp(-without["relevance_score"])) == pytest.approx(
            with_activation["relevance_score"]
        )


def test_vllm_s_answer_has_every_document_and_its_errors_are_400(
    make_service: MakeService, text_reranker: Reranker
) -> None:
    parts = [{"type": "text", "text": TEXTS[1]}]
    with client_of(make_service(text_reranker, dialect="vllm")) as client:
        body = {"query": "sales", "documents": [TEXTS[0], {"content": parts}]}
        answer = client.post("/rerank", json=body).json()
        documents = {result["index"]: result["document"] for result in answer["results"]}
        assert documents[0] == {"text": TEXTS[0], "multi_modal": None}
        assert documents[1] == {"text": None, "multi_modal": parts}
        assert answer["usage"]["prompt_tokens"] == answer["usage"]["total_tokens"] > 0
        refused = client.post("/rerank", json={**body, "query": "long " * 600})
        assert refused.status_code == 400
        assert refused.json()["error"]["code"] == 400
        assert "Please reduce the length of the input prompt" in refused.json()["error"]["message"]
        missing = client.post("/rerank", json={**body, "documents": ["no-such.pdf#1"], "on_missing": "error"})
        assert (missing.status_code, missing.json()["error"]["type"]) == (404, "NotFoundError")
        wrong_host = client.get("/v1/models", headers={"Host": "evil.example"})
        assert set(wrong_host.json()) == {"error"}


def test_tei_s_errors_have_its_shape(make_service: MakeService, text_reranker: Reranker) -> None:
    with client_of(make_service(text_reranker, dialect="tei")) as client:
        assert client.get("/health").status_code == 200
        alone = client.post("/rerank", json={"query": "profit", "documents": TEXTS[0], "top_n": 0})
        assert len(alone.json()["results"]) == 1
        response = client.post("/rerank", json={"query": "sales", "texts": TEXTS})
        assert [set(result) >= {"index", "score"} for result in response.json()] == [True, True]
        assert response.headers["X-Reranked"] == "true"
        kept = client.post("/rerank", json={"query": "profit", "texts": TEXTS})
        assert kept.headers["X-Reranked"] == "false"
        assert "in the order sent" in kept.headers["X-Reasons"]
        refused = client.post("/rerank", json={"query": "profit", "texts": []})
        assert (refused.status_code, refused.json()["error_type"]) == (422, "Validation")


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
