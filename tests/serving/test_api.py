"""Each endpoint answers as documented."""

import io
from dataclasses import replace
from typing import Any

import pytest
from fastapi.testclient import TestClient
from PIL import Image

from ridgerank.reranker.reranker import Reranker
from tests.serving.conftest import Corpus, MakeService, client_of, png


def page_uri(colour: str = "white") -> str:
    return f"data:image/png;base64,{png(colour)}"


def test_search_answers_as_the_reranker_does(client: TestClient, reranker: Reranker, corpus: Corpus) -> None:
    query = corpus.queries[0]
    answer = client.post("/v1/search", json={"query": query, "k": 12, "top_n": 12}).json()
    expected = reranker.search(query, k=12, top_k=12)
    for name in ("page_id", "fused_score", "relevance_score"):
        assert [result[name] for result in answer["results"]] == [
            getattr(page, name) for page in expected.pages
        ]
    assert answer["weight"] == expected.weight
    assert answer["weight_source"] == "calibration"
    assert set(answer["latency_ms"]) == {"queue", "retrieval", "reading", "compute", "ranking"}


def test_the_page_can_order_at_any_weight(client: TestClient, reranker: Reranker, corpus: Corpus) -> None:
    query = corpus.queries[1]
    answer = client.post("/v1/search", json={"query": query, "k": 10, "top_n": 10}).json()
    for result in answer["results"]:
        fused = (1 - answer["weight"]) * result["retriever_z"] + answer["weight"] * result["readout_z"]
        assert fused == pytest.approx(result["fused_score"], abs=1e-12)
    at_half = sorted(answer["results"], key=lambda result: -(result["retriever_z"] + result["readout_z"]))
    candidates = [(result["page_id"], result["retriever_score"]) for result in answer["results"]]
    expected = reranker.rank(query, candidates, weight=0.5)
    assert [result["page_id"] for result in at_half] == [page.page_id for page in expected.pages]


@pytest.mark.parametrize("path", ["/rerank", "/v1/rerank", "/v2/rerank"])
def test_rerank_takes_pages_by_id_and_reference(
    client: TestClient, reranker: Reranker, corpus: Corpus, path: str
) -> None:
    page_ids = reranker.store.page_ids()[:4]
    references = [reranker.store.reference(page_id) for page_id in page_ids]
    documents = [page_ids[0], references[1], {"page": references[2]}, {"id": page_ids[3]}]
    body = {"query": corpus.queries[0], "documents": documents, "return_documents": True}
    answer = client.post(path, json={**body, "model": "rerank-v3.5"}).json()
    expected = reranker.rank(corpus.queries[0], page_ids)
    assert [page_ids[result["index"]] for result in answer["results"]] == [
        page.page_id for page in expected.pages
    ]
    assert [result["document"]["page"] for result in answer["results"]] == [
        page.reference for page in expected.pages
    ]
    assert answer["weight_source"] == "calibration"
    assert "'rerank-v3.5' was asked for" in answer["meta"]["warnings"][0]
    scores = [result["relevance_score"] for result in answer["results"]]
    assert scores == sorted(scores, reverse=True)
    assert all(0 <= score <= 1 for score in scores)


def test_retriever_scores_may_come_along(client: TestClient, reranker: Reranker, corpus: Corpus) -> None:
    page_ids = reranker.store.page_ids()[:5]
    scores = [0.5, 3.0, -1.0, 2.0, 0.1]
    body = {"query": corpus.queries[0], "documents": page_ids, "retriever_scores": scores, "top_n": 2}
    answer = client.post("/v2/rerank", json=body).json()
    expected = reranker.rank(corpus.queries[0], list(zip(page_ids, scores, strict=True)), top_k=2)
    for name in ("fused_score", "retriever_score"):
        assert [result[name] for result in answer["results"]] == [
            getattr(page, name) for page in expected.pages
        ]


def test_images_are_encoded_and_mix_with_stored_pages(
    client: TestClient, reranker: Reranker, corpus: Corpus
) -> None:
    stored = reranker.store.page_ids()[0]
    parts = {"content": [{"type": "image_url", "image_url": {"url": page_uri("navy")}}]}
    documents = [stored, page_uri(), {"image": page_uri("red"), "text": "a caption"}, parts]
    body = {"query": corpus.queries[0], "documents": documents, "return_documents": True}
    response = client.post("/v2/rerank", json=body)
    assert response.status_code == 200, response.text
    answer = response.json()
    assert not answer["reranked"]  # only one of them has a text: nothing tells them apart
    assert "the documents are in the order sent" in answer["reasons"][0]
    assert sorted(result["index"] for result in answer["results"]) == list(range(4))
    shown = {result["index"]: result["document"] for result in answer["results"]}
    assert shown[1]["image"] == "image/png"
    assert shown[2]["text"] == "a caption"
    assert [result["index"] for result in answer["results"]] == [0, 1, 2, 3]


def test_texts_are_answered_in_tei_s_shape(text_client: TestClient) -> None:
    body = {"query": "two", "texts": ["one", "two words"], "return_text": True}
    plain = text_client.post("/rerank", json=body).json()
    raw = text_client.post("/rerank", json={**body, "raw_scores": True}).json()
    assert {result["text"] for result in plain} == {"one", "two words"}
    assert all(0 <= result["score"] <= 1 for result in plain)
    assert sum(result["score"] for result in raw) == pytest.approx(0.0)


def test_without_leave_to_encode_a_text_is_refused_and_told_why(
    make_service: MakeService, corpus: Corpus
) -> None:
    with client_of(make_service(encode_missing=False)) as closed:
        body = {"query": corpus.queries[0], "documents": ["some text"], "on_missing": "error"}
        answer = closed.post("/v1/rerank", json=body)
    assert answer.status_code == 422
    assert answer.json()["code"] == "not_stored"
    assert "--stored-only" in answer.json()["message"]


@pytest.mark.parametrize("name", ["0" * 64, "no-such.pdf#1", "../../etc/passwd#1"])
def test_what_looks_like_a_page_and_is_none_is_never_ranked_as_text(client: TestClient, name: str) -> None:
    for document in (name, {"page": name}, {"text": name}):
        body = {"query": "x", "documents": [document]}
        kept = client.post("/v1/rerank", json=body).json()
        assert not kept["reranked"]
        assert "documents[0]: no page" in kept["reasons"][0]
        answer = client.post("/v1/rerank", json={**body, "on_missing": "error"})
        assert answer.status_code == 404
        assert answer.json()["code"] == "page_not_found"


def test_score_gives_each_pair_s_own_score(client: TestClient, reranker: Reranker, corpus: Corpus) -> None:
    page_ids = reranker.store.page_ids()[:3]
    pages = reranker.rank(corpus.queries[0], page_ids, weight=1.0).pages
    expected = {page.page_id: page.readout_score for page in pages}
    same_query, other_queries = (
        [pair["score"] for pair in client.post("/v1/score", json=body).json()["data"]]
        for body in (
            {"queries": corpus.queries[0], "documents": page_ids},
            {"queries": list(corpus.queries[:3]), "documents": page_ids},
        )
    )
    assert same_query == pytest.approx([expected[page] for page in page_ids])
    assert other_queries[0] == pytest.approx(same_query[0], abs=1e-4)
    assert other_queries[1] != pytest.approx(same_query[1], abs=1e-4)


def test_explain_answers_as_the_reranker_does(client: TestClient, reranker: Reranker, corpus: Corpus) -> None:
    page_id = reranker.store.page_ids()[3]
    answer = client.post("/v1/explain", json={"query": corpus.queries[0], "page": page_id}).json()
    expected = reranker.explain(corpus.queries[0], page_id)
    assert answer["weights"] == list(expected.weights)
    assert answer["regions"] == [list(region or ()) for region in expected.regions]
    assert answer["reference"] == expected.reference
    assert client.post("/v1/explain", json={"query": "x", "page": page_id, "layer": 99}).status_code == 422


def test_page_images_are_rendered_and_a_document_that_is_gone_is_told(
    client: TestClient, reranker: Reranker, monkeypatch: pytest.MonkeyPatch
) -> None:
    page_id = reranker.store.page_ids()[0]
    for kind, least in (("image", 1000), ("thumbnail", 50)):
        first = client.get(f"/v1/pages/{page_id}/{kind}")
        assert first.status_code == 200
        with Image.open(io.BytesIO(first.content)) as image:
            assert image.get_format_mimetype() == first.headers["content-type"]
            assert image.height >= least
    monkeypatch.setattr("ridgerank.serving.service.recall_sources", lambda uri, names: [])
    answer = client.get(f"/v1/pages/{reranker.store.page_ids()[5]}/image")
    assert answer.status_code == 404
    assert answer.json()["code"] == "document_gone"


def test_store_and_calibration_tell_facts_but_no_path(
    client: TestClient, reranker: Reranker, corpus: Corpus
) -> None:
    store, calibration = client.get("/v1/store"), client.get("/v1/calibration")
    assert store.json()["pages"] == len(reranker.store)
    assert store.json()["retriever"] == "mini-colqwen-small"
    assert calibration.json()["weight"]["weight"] == reranker.calibration.weight.weight
    assert len(calibration.json()["penalties"]) > 3
    folder = corpus.store.rpartition("/")[0]
    assert folder not in store.text + calibration.text


@pytest.mark.parametrize("path", ["/v1/search", "/v1/rerank", "/rerank"])
def test_min_score_leaves_low_pages_out_and_may_leave_none(
    client: TestClient, reranker: Reranker, corpus: Corpus, path: str
) -> None:
    query = corpus.queries[0]
    pages = reranker.search(query, k=12, top_k=12).pages
    documents = {"documents": [page.reference for page in pages]}
    body = {"query": query, **({"k": 12, "top_n": 12} if path == "/v1/search" else documents)}
    least = (pages[5].relevance_score + pages[6].relevance_score) / 2
    some = client.post(path, json={**body, "min_score": least}).json()
    assert {result["page_id"] for result in some["results"]} == {
        page.page_id for page in pages if page.relevance_score >= least
    }
    none = client.post(path, json={**body, "min_score": 1}).json()
    assert none["results"] == []
    assert "no page reaches min_score 1" in none["reasons"][-1]
    assert client.post(path, json={**body, "min_score": 1.5}).status_code == 422


def test_min_score_is_refused_if_no_margin_is_predicted(
    client: TestClient, reranker: Reranker, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reranker, "calibration", replace(reranker.calibration, target_readout=None))
    answer = client.post("/v1/search", json={"query": corpus.queries[0], "min_score": 0.5})
    assert answer.status_code == 422
    assert answer.json()["code"] == "bad_scores"
    assert "only ranks" in answer.json()["message"]


def test_without_a_retriever_lists_are_ranked_and_nothing_is_searched(
    make_service: MakeService, reranker: Reranker, corpus: Corpus
) -> None:
    service = make_service()
    [store] = service.stores.values()
    store._state = replace(store.state, retriever=None)
    with client_of(service) as client:
        answer = client.post("/v1/search", json={"query": corpus.queries[0]})
        assert answer.status_code == 409
        body = {"query": corpus.queries[0], "documents": reranker.store.page_ids()[:3]}
        assert client.post("/v1/rerank", json=body).json()["reranked"]


def test_metrics_split_the_time_and_watch_for_drift(
    client: TestClient, reranker: Reranker, corpus: Corpus
) -> None:
    for query in corpus.queries[:4]:
        assert client.post("/v1/search", json={"query": query, "k": 12}).status_code == 200
    lines = client.get("/metrics").text.splitlines()
    values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    for step in ("queue", "retrieval", "reading", "compute", "ranking"):
        assert values[f'ridgerank_step_seconds_count{{step="{step}"}}'] == "4.0"
    assert float(values["ridgerank_cache_hits_total"]) > 0
    assert values['ridgerank_drift_rankings{store="default"}'] == "4.0"
    for gauge, calibrated in (
        ("rho", reranker.calibration.weight.rho),
        ("readout_spread", reranker.calibration.diagnostics.readout_spread),
    ):
        assert float(values[f'ridgerank_{gauge}_calibrated{{store="default"}}']) == calibrated
        assert abs(float(values[f'ridgerank_{gauge}{{store="default"}}'])) < 5 * abs(calibrated) + 1
    assert values['ridgerank_requests_total{route="/v1/search",status="200"}'] == "4.0"


def test_a_key_is_wanted_where_there_are_keys(make_service: MakeService) -> None:
    keys = ("a-key-of-some-length-1", "a-key-of-some-length-2")
    with client_of(make_service(keys=dict.fromkeys(keys))) as client:

        def status(path: str, **headers: str) -> int:
            return client.get(path, headers=headers).status_code

        for path in ("/v1/store", "/metrics", f"/v1/pages/{'0' * 64}/image", "/nowhere"):
            for wrong in ("", "Bearer wrong", f"Basic {keys[0]}", f"Bearer {keys[0]}x", "Bearer \xe9"):
                refused = client.get(path, headers={b"Authorization": wrong.encode("latin-1")})
                assert refused.status_code == 401
                assert refused.json()["code"] == "unauthorized"
                assert refused.headers["www-authenticate"] == "Bearer"
        for key in keys:
            assert status("/v1/store", Authorization=f"Bearer {key}") == 200
        for path in ("/healthz", "/readyz"):
            assert status(path) == 200


def test_a_page_elsewhere_on_the_web_cannot_call_a_loopback_server(client: TestClient) -> None:
    for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example", ""):
        refused = client.get("/v1/store", headers={"Host": host})
        assert refused.status_code == 421, host
    for host in ("127.0.0.1:9999", "localhost", "[::1]:8080"):
        assert client.get("/v1/store", headers={"Host": host}).status_code == 200


def test_a_search_may_be_within_some_documents(client: TestClient, corpus: Corpus) -> None:
    query = corpus.queries[0]
    found = client.post("/v1/search", json={"query": query, "k": 12, "top_n": 12}).json()["results"]
    document = found[-1]["reference"].partition("#")[0]
    body = {"query": query, "k": 12, "top_n": 12, "documents": [document]}
    within = client.post("/v1/search", json=body).json()["results"]
    assert within
    assert {page["reference"].partition("#")[0] for page in within} == {document}
    long = client.post("/v1/search", json={"query": corpus.queries[0], "documents": ["?" * 500] * 90})
    assert (long.status_code, long.json()["code"]) == (422, "nothing_to_search")
    assert len(long.text) < 300
    refused = client.post("/v1/search", json={"query": query, "metadata": {"kind": ["report", 3]}})
    assert refused.status_code == 422
    assert "no stored page has kind=report and kind=3" in refused.text
    assert client.get("/v1/store").json()["labels"] == []


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


def test_unknown_and_empty_documents_stand_last_or_are_left_out_or_an_error(
    text_client: TestClient, text_reranker: Reranker
) -> None:
    stored = text_reranker.store.reference(text_reranker.store.page_ids()[0])
    documents = ["gone.pdf#3", stored, "", CHUNKS[0], "http://example.org/"]
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
    other = text_client.post("/v2/rerank", json={"query": QUERY, "documents": ["a text", {"name": 1}]})
    said = "documents[1]: expected a text, an image or the name of a stored page"
    assert other.json()["message"] == f"the request is not as expected; {said}"


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
