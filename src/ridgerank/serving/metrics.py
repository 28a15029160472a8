"""Metrics for Prometheus: where time goes, what was reranked, and whether scores drift from the calibration.

Names follow OpenTelemetry's GenAI conventions if there is one: the time of a request.

Several worker processes share a folder (`SHARED_FOLDER`), through which each of them answers for all.
"""

import math
import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

from ridgerank.calibration.artifact import Calibration
from ridgerank.fusion.correlations import correlate
from ridgerank.fusion.standardize import standard_deviations
from ridgerank.ragged import Ragged
from ridgerank.records import Ranking
from ridgerank.reranker.candidates import CandidateList
from ridgerank.serving.engine import Engine, RankingResult
from ridgerank.serving.settings import SHARED_FOLDER
from ridgerank.serving.stores import ServedStore, StoreState
from ridgerank.store.page_store import CacheCounts

DRIFT_RANKINGS = 256
"""Drift is a mean over this many rankings, the last ones."""
MIN_DRIFT_PAGES = 5
"""A shorter list says next to nothing about a correlation."""
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_REQUEST_SECONDS = tuple(0.01 * 2**power for power in range(14))
"""As the conventions have them."""
OPERATIONS = {
    **dict.fromkeys(("/rerank", "/v1/rerank", "/v2/rerank"), "rerank"),
    **dict.fromkeys(("/score", "/v1/score"), "score"),
    "/v1/search": "retrieval",
    "/v1/explain": "explain",
}
"""Route → what it does; of these only requests that need the model."""
_GAUGES = {
    "cache_pages": "Pages in the page cache.",
    "cache_bytes": "Bytes in the page cache.",
    "admitted": "Requests waiting or being worked on.",
    "admitted_limit": "Requests that may be.",
    "weight": "The calibrated weight of the readout.",
    "drift_rankings": f"Rankings drift is taken over, the last {DRIFT_RANKINGS} at most.",
    "rho": "Mean correlation of retriever and readout scores over these; away from rho_calibrated, calibrate "
    "again: serve --query-log FILE, then calibrate --queries FILE.",
    "rho_calibrated": "The same at calibration.",
    "readout_spread": "Mean width of the readout's scores in a list over these.",
    "readout_spread_calibrated": "The same at calibration.",
}


class Drift:
    """ρ and the spread of the readout's scores in the last rankings under one calibration; for one thread."""

    def __init__(self, calibration: Calibration) -> None:
        self.calibration = calibration
        self._rho: deque[float] = deque(maxlen=DRIFT_RANKINGS)
        self._spread: deque[float] = deque(maxlen=DRIFT_RANKINGS)

    def record(self, ranking: Ranking, *, scored: bool) -> None:
        """Add a ranking; one without retriever scores has no ρ."""
        if len(ranking.pages) < MIN_DRIFT_PAGES:
            return
        lists = Ragged.of_lengths([len(ranking.pages)])
        readout = np.array([page.readout_score for page in ranking.pages])
        retriever = np.array([page.retriever_score for page in ranking.pages])
        self._spread.append(float(standard_deviations(readout, lists)[0]))
        if scored:
            # The third vector is of no interest; as at calibration, constant scores do not count.
            self._rho += correlate(retriever, readout, readout, lists).mutual.tolist()

    def gauges(self) -> dict[str, float]:
        """Means over these rankings, NaN without any, and what they were at calibration."""
        return {
            "weight": self.calibration.weight.weight,
            "drift_rankings": len(self._spread),
            "rho": float(np.mean(self._rho)) if self._rho else math.nan,
            "rho_calibrated": self.calibration.weight.rho,
            "readout_spread": float(np.mean(self._spread)) if self._spread else math.nan,
            "readout_spread_calibrated": self.calibration.diagnostics.readout_spread,
        }


def weight_source(candidates: CandidateList) -> str:
    """Where the weight of a list came from."""
    if not candidates.scored:
        return "readout_alone"
    return "calibration" if candidates.calibrated else "default"


def step_times(result: RankingResult) -> dict[str, float]:
    """The milliseconds of each step of a ranking."""
    latency = result.ranking.latency
    return {
        "queue": result.queue_ms,
        "retrieval": latency.retrieval_ms,
        "reading": latency.reading_ms,
        "compute": latency.compute_ms,
        "ranking": latency.ranking_ms,
    }


class Metrics:
    """The metrics of one server, in a registry of its own."""

    def __init__(
        self, engine: Engine, stores: Mapping[str, ServedStore], count_cache: Callable[[], CacheCounts]
    ) -> None:
        self._engine = engine
        self._stores = stores
        self._count_cache = count_cache
        self._counts = count_cache()
        self._drifts: dict[str, Drift] = {}
        self._registry = CollectorRegistry()
        self._requests = self._counter("requests", "Requests by route and status.", "route", "status")
        self._answers = self._counter(
            "answers",
            "Searches and rerank requests: reranked, degraded (the retriever's order) or refused (429, 503).",
            "store",
            "outcome",
        )
        self._sources = self._counter("weight_source", "Where the weight came from.", "store", "source")
        self.hang_ups = self._counter("left", "Callers that hung up before their answer.")
        self._cache_hits = self._counter("cache_hits", "Page cache hits.")
        self._cache_misses = self._counter("cache_misses", "Page cache misses.")
        self._latency = self._histogram(
            "ridgerank_step_seconds",
            "Where the time of a request went; shared passes count in full for each.",
            _SECONDS,
            "step",
        )
        self._total = self._histogram(
            "gen_ai_server_request_duration_seconds",
            "Time of a request, as the server saw it.",
            _REQUEST_SECONDS,
            "gen_ai_operation_name",
            "error_type",
        )
        self._displacement = self._histogram(
            "ridgerank_rank_displacement",
            "By how many ranks the model moved a page, on average over a list.",
            (0, 0.5, 1, 2, 3, 4, 6, 8, 12, 16),
            "store",
        )
        self._batch_jobs = self._histogram(
            "ridgerank_requests_together",
            "Requests taken at once, as each of them saw it.",
            (1, 2, 4, 8, 16, 32),
        )
        self._gauges: dict[str, Gauge] = {}
        self._set_gauges(stores)

    def record_request(self, route: str, status: int, seconds: float, store: str) -> None:
        """Count a finished request; `store` is empty if it did not get to one."""
        self._requests.labels(route, str(status)).inc()
        if operation := OPERATIONS.get(route):
            self._total.labels(operation, "" if status < 400 else str(status)).observe(seconds)
            if status in (429, 503):
                self._answers.labels(store, "refused").inc()
        self._set_gauges([store] if store else [])

    def record_ranking(self, state: StoreState, result: RankingResult) -> None:
        """Count a ranking: its time, its batch, its order and its scores."""
        ranking, store = result.ranking, state.name
        self._answers.labels(store, "reranked" if ranking.reranked else "degraded").inc()
        self._sources.labels(store, weight_source(result.candidates)).inc()
        times = step_times(result)
        for step, time_ms in times.items():
            self._latency.labels(step).observe(time_ms / 1000)
        if ranking.reranked:
            moved = [abs(page.rank - page.retriever_rank) for page in ranking.pages]
            self._displacement.labels(store).observe(sum(moved) / len(moved))
            self._batch_jobs.observe(result.batch_jobs)
            self._drift(store, state.reranker.calibration).record(ranking, scored=result.candidates.scored)
        if (trace := sys.modules.get("opentelemetry.trace")) is not None:  # the server is being traced
            span = trace.get_current_span()
            span.set_attribute("gen_ai.operation.name", "rerank")
            span.set_attribute("ridgerank.candidates", len(result.candidates.page_ids))
            span.set_attributes({f"ridgerank.{step}_ms": time_ms for step, time_ms in times.items()})

    def text(self) -> bytes:
        """All metrics, of all worker processes, in Prometheus' text format."""
        self._set_gauges(self._stores)
        if SHARED_FOLDER not in os.environ:
            return generate_latest(self._registry)
        shared = CollectorRegistry()
        MultiProcessCollector(shared)  # type: ignore[no-untyped-call]
        return generate_latest(shared)

    def close(self) -> None:
        """Take this process out of the sums over processes."""
        if SHARED_FOLDER in os.environ:
            mark_process_dead(os.getpid())  # type: ignore[no-untyped-call]

    def _counter(self, name: str, meaning: str, *labels: str) -> Counter:
        return Counter(f"ridgerank_{name}", meaning, labels, registry=self._registry)

    def _histogram(self, name: str, meaning: str, buckets: Sequence[float], *labels: str) -> Histogram:
        return Histogram(name, meaning, labels, buckets=buckets, registry=self._registry)

    def _drift(self, store: str, calibration: Calibration) -> Drift:
        """The drift of a store; a new calibration begins anew."""
        if store not in self._drifts or self._drifts[store].calibration is not calibration:
            self._drifts[store] = Drift(calibration)
        return self._drifts[store]

    def _set_gauges(self, stores: Iterable[str]) -> None:
        """Take over what is counted elsewhere."""
        counts, seen = self._count_cache(), self._counts
        self._counts = counts
        self._cache_hits.inc(max(0, counts.hits - seen.hits))
        self._cache_misses.inc(max(0, counts.misses - seen.misses))
        self._set("cache_pages", counts.pages)
        self._set("cache_bytes", counts.nbytes)
        self._set("admitted", self._engine.admitted)
        self._set("admitted_limit", self._engine.limits.admitted)
        for name in stores:
            if self._stores[name].is_open:
                drift = self._drift(name, self._stores[name].state.reranker.calibration)
                for gauge, value in drift.gauges().items():
                    self._set(gauge, value, name)

    def _set(self, name: str, value: float, store: str | None = None) -> None:
        """Set a gauge: of workers together their sum, of a store what the last worker said."""
        if name not in self._gauges:
            mode: Literal["livesum", "livemostrecent"] = "livesum" if store is None else "livemostrecent"
            labels = () if store is None else ("store",)
            self._gauges[name] = Gauge(
                f"ridgerank_{name}", _GAUGES[name], labels, registry=self._registry, multiprocess_mode=mode
            )
        gauge = self._gauges[name]
        (gauge if store is None else gauge.labels(store)).set(value)
