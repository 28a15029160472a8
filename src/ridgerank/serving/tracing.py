"""OpenTelemetry spans of requests, where that is wanted; only this file imports opentelemetry.

A request's span is a child of the caller's (`traceparent`). Below it stand the steps of each ranking: queue,
retrieval, reading, compute, ranking. Their lengths are measured; they are laid end to end up to the answer.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ridgerank.errors import ExtraMissing
from ridgerank.serving.jobs import RankingResult
from ridgerank.version import __version__

STEPS = ("queue", "retrieval", "reading", "compute", "ranking")


class RequestSpan:
    """The span of one request; without tracing it is nothing."""

    trace_id: str | None = None

    def end_with(self, status: int) -> None:
        """Note the answer's status."""


class Tracing:
    """No tracing: spans that are nothing."""

    @contextmanager
    def request_span(
        self, method: str, path: str, headers: Mapping[bytes, bytes], request_id: str
    ) -> Iterator[RequestSpan]:
        """A span around one request."""
        yield RequestSpan()

    def record_steps(self, result: RankingResult) -> None:
        """Spans of a ranking's steps, below the span of the request that is worked on."""


class OpenTelemetryTracing(Tracing):
    """Spans through OpenTelemetry's tracer."""

    def __init__(self, provider: Any = None) -> None:  # noqa: ANN401 (a TracerProvider; the type is optional)
        """Use a provider, or one that sends spans where the variables `OTEL_EXPORTER_OTLP_…` say."""
        try:
            from opentelemetry import propagate, trace
        except ModuleNotFoundError as error:
            raise _missing(error) from error
        self._trace, self._propagate = trace, propagate
        self._provider = provider or _exporting_provider()
        self._tracer = self._provider.get_tracer("ridgerank", __version__)

    @contextmanager
    def request_span(
        self, method: str, path: str, headers: Mapping[bytes, bytes], request_id: str
    ) -> Iterator[RequestSpan]:
        """A span around one request, a child of the caller's."""
        carrier = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers.items()}
        attributes = {"http.request.method": method, "url.path": path, "ridgerank.request_id": request_id}
        with self._tracer.start_as_current_span(
            f"{method} {path}",
            context=self._propagate.extract(carrier),
            kind=self._trace.SpanKind.SERVER,
            attributes=attributes,
        ) as span:
            yield _OpenTelemetrySpan(span)

    def record_steps(self, result: RankingResult) -> None:
        """Spans of a ranking's steps, laid end to end up to now."""
        latency = result.ranking.latency
        times = (result.queue_ms, *(getattr(latency, f"{step}_ms") for step in STEPS[1:]))
        lengths = [round(1_000_000 * milliseconds) for milliseconds in times]
        start = time.time_ns() - sum(lengths)
        for step, length in zip(STEPS, lengths, strict=True):
            attributes = {"ridgerank.candidates": len(result.candidates.page_ids)}
            span = self._tracer.start_span(step, start_time=start, attributes=attributes)
            start += length
            span.end(end_time=start)


class _OpenTelemetrySpan(RequestSpan):
    def __init__(self, span: Any) -> None:  # noqa: ANN401
        self._span = span
        self.trace_id = f"{span.get_span_context().trace_id:032x}"

    def end_with(self, status: int) -> None:
        self._span.set_attribute("http.response.status_code", status)


def _exporting_provider() -> Any:  # noqa: ANN401
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ModuleNotFoundError as error:
        raise _missing(error) from error
    resource = Resource.create({"service.name": "ridgerank", "service.version": __version__})
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider


def _missing(error: ModuleNotFoundError) -> ExtraMissing:
    return ExtraMissing(
        f"{error.name} is not installed: `pip install 'ridgerank[otel]' "
        "opentelemetry-exporter-otlp-proto-http`"
    )
