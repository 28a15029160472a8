"""Request ids, JSON logs and spans."""

import json
import logging

import pytest
from fastapi.testclient import TestClient

from ridgerank.reranker.reranker import Reranker
from ridgerank.serving.request_log import JsonFormatter
from ridgerank.serving.serve_settings import ServeSettings
from ridgerank.serving.service import Service
from ridgerank.serving.tracing import STEPS, OpenTelemetryTracing
from tests.serving.conftest import PATIENT_LIMITS, Corpus, client_of

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
    with caplog.at_level(logging.INFO, logger="ridgerank.serving.request_log"):
        client.get("/nowhere%0a", headers={"X-Request-ID": "abc-3"})
    [record] = [record for record in caplog.records if record.name == "ridgerank.serving.request_log"]
    line = JsonFormatter().format(record)
    assert "\n" not in line
    facts = json.loads(line)
    assert facts["request_id"] == "abc-3"
    assert (facts["status"], facts["method"], facts["level"]) == (404, "GET", "info")
    assert facts["milliseconds"] >= 0


def test_an_exception_is_logged_in_one_line() -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError as error:
        caught = (type(error), error, error.__traceback__)
    record = logging.LogRecord("name", logging.ERROR, "path", 1, "failed", None, caught)
    line = JsonFormatter().format(record)
    assert "\n" not in line
    assert "ValueError: two\nlines" in json.loads(line)["exception"]


def test_spans_of_the_steps_stand_below_the_caller_s(reranker: Reranker, corpus: Corpus) -> None:
    sdk = pytest.importorskip("opentelemetry.sdk.trace", reason="the [otel] extra is not installed")
    export = pytest.importorskip("opentelemetry.sdk.trace.export")
    memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
    provider, exporter = sdk.TracerProvider(), memory.InMemorySpanExporter()
    provider.add_span_processor(export.SimpleSpanProcessor(exporter))
    service = Service(reranker, ServeSettings(limits=PATIENT_LIMITS))
    service.tracing = OpenTelemetryTracing(provider)
    try:
        with client_of(service) as client:
            body = {"query": corpus.queries[0], "k": 4}
            answer = client.post("/v1/search", json=body, headers={"traceparent": PARENT})
    finally:
        service.engine.close()
        service.page_images.close()
        service.image_decoder.close()
    spans = {span.name: span for span in exporter.get_finished_spans()}
    request = spans["POST /v1/search"]
    assert f"{request.context.trace_id:032x}" == PARENT.split("-")[1]
    assert f"{request.parent.span_id:016x}" == PARENT.split("-")[2]
    assert request.attributes["http.response.status_code"] == 200
    times = answer.json()["latency_ms"]
    for step in STEPS:
        span = spans[step]
        assert span.parent.span_id == request.context.span_id
        assert (span.end_time - span.start_time) / 1e6 == pytest.approx(times[step], abs=1e-3)
    assert spans["ranking"].start_time == spans["compute"].end_time
