"""Request ids, JSON logs, traces and the query log."""

import json
import logging
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from ridgerank.errors import ServingError
from ridgerank.serving.app import create_app
from ridgerank.serving.logs import JsonFormatter, QueryLog
from ridgerank.trec import read_queries
from tests.serving.conftest import HOME, Corpus, MakeService, client_of

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_a_request_keeps_its_id_and_gets_one_where_it_has_none(client: TestClient) -> None:
    sent = client.get("/healthz", headers={"X-Request-ID": "abc-1"})
    assert sent.headers["x-request-id"] == "abc-1"
    made = [client.get("/healthz").headers["x-request-id"] for _ in range(2)]
    assert made[0] != made[1]
    for bad in ("a b", "x" * 200, '"}'):
        assert client.get("/healthz", headers={"X-Request-ID": bad}).headers["x-request-id"] != bad
    refused = client.get("/v1/store", headers={"Host": "evil.example", "X-Request-ID": "abc-2"})
    assert (refused.status_code, refused.headers["x-request-id"]) == (421, "abc-2")


def test_a_line_of_the_log_is_json_with_the_request_s_facts(
    client: TestClient, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="ridgerank.requests"):
        client.get("/nowhere%0a", headers={"X-Request-ID": "abc-3"})
    [record] = [record for record in caplog.records if record.name == "ridgerank.requests"]
    line = JsonFormatter().format(record)
    assert "\n" not in line
    facts = json.loads(line)
    assert facts["request_id"] == "abc-3"
    assert (facts["status"], facts["method"], facts["level"]) == (404, "GET", "info")
    assert facts["milliseconds"] >= 0


def test_no_request_writes_a_line_of_its_own_into_the_log(
    make_service: MakeService, corpus: Corpus, caplog: pytest.LogCaptureFixture
) -> None:
    forged = "costs\r\nWARNING: forged\x1b[2J"
    documents = [{"text": forged, "id": forged}, forged, {"page": forged}, {"source": forged, "page": 1}]
    wishes = {"retriever": forged, "store": forged, "order": forged, "on_overload": forged, forged: forged}
    within: list[dict[str, object]] = [{"documents": [forged]}, {"metadata": {forged: forged}}]
    sent: list[tuple[str, dict[str, object]]]
    sent = [("search", {"query": forged, "k": 3, **more}) for more in ({}, *within)]
    sent += [
        ("rerank", {"query": forged, "documents": [each], "retriever_scores": [1]}) for each in documents
    ]
    sent += [("rerank", {"query": "q", "documents": ["a"], name: word}) for name, word in wishes.items()]
    sent += [
        ("explain", {"query": forged, "page": forged}),
        ("score", {"queries": forged, "documents": [""]}),
    ]
    sent += [("judgements", {"query": forged, "page": forged, "grade": 1, "judge": forged})]
    with caplog.at_level(logging.INFO), client_of(make_service(judge=True)) as client:
        for route, body in sent:
            client.post(f"/v1/{route}", json=body, headers={"X-Request-ID": "a\tb", "User-Agent": "x\x1b[2J"})
        client.get("/%0aWARNING:%20forged%1b[2J", params={"query": forged})
    lines = [record.getMessage() for record in caplog.records if record.name.startswith("ridgerank")]
    assert len(lines) > len(sent)
    assert not [line for line in lines if not line.isprintable()]


def test_a_traced_request_carries_the_times_of_its_steps(make_service: MakeService, corpus: Corpus) -> None:
    instrumentation = pytest.importorskip("opentelemetry.instrumentation.fastapi", reason="needs [otel]")
    sdk = pytest.importorskip("opentelemetry.sdk.trace")
    export = pytest.importorskip("opentelemetry.sdk.trace.export")
    memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
    provider, exporter = sdk.TracerProvider(), memory.InMemorySpanExporter()
    provider.add_span_processor(export.SimpleSpanProcessor(exporter))
    app = create_app(make_service(), close=False)
    instrumentation.FastAPIInstrumentor.instrument_app(app, tracer_provider=provider)
    with TestClient(app, base_url=HOME) as client:
        body = {"query": corpus.queries[0], "k": 4}
        answer = client.post("/v1/search", json=body, headers={"traceparent": PARENT})
    [request] = [span for span in exporter.get_finished_spans() if span.name == "POST /v1/search"]
    assert f"{request.context.trace_id:032x}" == PARENT.split("-")[1]
    for step, milliseconds in answer.json()["latency_ms"].items():
        assert request.attributes[f"ridgerank.{step}_ms"] == milliseconds


def test_queries_are_kept_as_a_calibration_reads_them(
    make_service: MakeService, corpus: Corpus, tmp_path: Path
) -> None:
    with client_of(make_service(query_log=tmp_path / "queries.jsonl")) as client:
        for query in corpus.queries[:3]:
            assert client.post("/v1/search", json={"query": query, "k": 3}).status_code == 200
    [path] = tmp_path.iterdir()
    assert [query.text for query in read_queries(path)] == list(corpus.queries[:3])
    with pytest.raises(ServingError, match="cannot be written"):
        QueryLog(tmp_path / "none" / "queries.jsonl")
