"""Metrics for Prometheus: where time goes, what is refused, and whether scores drift from the calibration.

Several worker processes share a folder (`SHARED_FOLDER`), through which each of them answers for all.
"""

import math
import os
import sys
from collections import deque
from threading import Lock
from typing import Literal

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

from ridgerank.fusion.correlations import correlate
from ridgerank.fusion.standardize import standard_deviations
from ridgerank.ragged import Ragged
from ridgerank.records import Ranking
from ridgerank.reranker.reranker import Reranker
from ridgerank.serving.engine import Engine, RankingResult
from ridgerank.serving.settings import SHARED_FOLDER

DRIFT_RANKINGS = 256
"""Drift is a mean over this many rankings, the last ones."""
MIN_DRIFT_PAGES = 5
"""A shorter list says next to nothing about a correlation."""
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
RECALIBRATE = "to calibrate on what is searched for: serve --query-log FILE, then calibrate --queries FILE"


class Drift:
    """Mean ρ and mean spread of the readout's scores over the last rankings."""

    def __init__(self) -> None:
        self._rho: deque[float] = deque(maxlen=DRIFT_RANKINGS)
        self._spread: deque[float] = deque(maxlen=DRIFT_RANKINGS)
        self._lock = Lock()

    def record(self, ranking: Ranking, *, scored: bool) -> None:
        """Add a ranking; one without retriever scores has no ρ."""
        if len(ranking.pages) < MIN_DRIFT_PAGES:
            return
        lists = Ragged.of_lengths([len(ranking.pages)])
        readout = np.array([page.readout_score for page in ranking.pages])
        retriever = np.array([page.retriever_score for page in ranking.pages])
        with self._lock:
            self._spread.append(float(standard_deviations(readout, lists)[0]))
            if scored:
                # The third vector is of no interest; as at calibration, constant scores do not count.
                self._rho += correlate(retriever, readout, readout, lists).mutual.tolist()

    def means(self) -> tuple[float, float, int]:
        """Mean ρ and mean spread, NaN without rankings; how many rankings."""
        with self._lock:
            rho = float(np.mean(self._rho)) if self._rho else math.nan
            width = float(np.mean(self._spread)) if self._spread else math.nan
            return rho, width, len(self._spread)


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

    def __init__(self, engine: Engine, reranker: Reranker) -> None:
        self._engine = engine
        self._reranker = reranker
        self._counts = reranker.cache_counts()
        self.drift = Drift()
        self._registry = CollectorRegistry()
        self._requests = self._counter("requests", "Requests by route and status.", "route", "status")
        self._refused = self._counter("refused", "Requests not admitted (429).", "route")
        self._hang_ups = self._counter("left", "Callers that hung up before their answer.")
        self._cache_hits = self._counter("cache_hits", "Page cache hits.")
        self._cache_misses = self._counter("cache_misses", "Page cache misses.")
        self._latency = self._histogram(
            "step_seconds", "Where the time of a request went; shared passes count in full for each.", "step"
        )
        self._total = self._histogram(
            "request_seconds", "Time of an answered request, as the server saw it.", "route"
        )
        self._batch_jobs = Histogram(
            "ridgerank_requests_together",
            "Requests taken at once, as each of them saw it.",
            buckets=(1, 2, 4, 8, 16, 32),
            registry=self._registry,
        )
        self._gauges: dict[str, Gauge] = {}
        self._set_gauges()

    def record_request(self, route: str, status: int, seconds: float) -> None:
        """Count a finished request."""
        self._requests.labels(route, str(status)).inc()
        if status == 429:
            self._refused.labels(route).inc()
        if status < 400:
            self._total.labels(route).observe(seconds)
        self._set_gauges()

    def record_hang_up(self) -> None:
        """Count a caller who hung up."""
        self._hang_ups.inc()

    def record_ranking(self, result: RankingResult) -> None:
        """Count a ranking: its time, its batch and its scores."""
        times = step_times(result)
        for step, time_ms in times.items():
            self._latency.labels(step).observe(time_ms / 1000)
        self._batch_jobs.observe(result.batch_jobs)
        self.drift.record(result.ranking, scored=result.candidates.scored)
        if (trace := sys.modules.get("opentelemetry.trace")) is not None:  # the server is being traced
            span = trace.get_current_span()
            span.set_attribute("ridgerank.candidates", len(result.candidates.page_ids))
            span.set_attributes({f"ridgerank.{step}_ms": time_ms for step, time_ms in times.items()})

    def text(self) -> bytes:
        """All metrics, of all worker processes, in Prometheus' text format."""
        self._set_gauges()
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

    def _histogram(self, name: str, meaning: str, label: str) -> Histogram:
        return Histogram(f"ridgerank_{name}", meaning, [label], buckets=_SECONDS, registry=self._registry)

    def _set_gauges(self) -> None:
        """Take over what is counted elsewhere."""
        counts, seen = self._reranker.cache_counts(), self._counts
        self._counts = counts
        self._cache_hits.inc(max(0, counts.hits - seen.hits))
        self._cache_misses.inc(max(0, counts.misses - seen.misses))
        rho, width, rankings = self.drift.means()
        calibration = self._reranker.calibration
        known_rho, known_width = calibration.weight.rho, calibration.diagnostics.readout_spread
        sums = {
            "cache_pages": ("Pages in the page cache.", counts.pages),
            "cache_bytes": ("Bytes in the page cache.", counts.nbytes),
            "admitted": ("Requests waiting or being worked on.", self._engine.admitted),
            "admitted_limit": ("Requests that may be.", self._engine.limits.admitted),
        }
        latest = {
            "weight": ("The calibrated weight of the readout.", calibration.weight.weight),
            "drift_rankings": (f"Rankings drift is taken over, the last {DRIFT_RANKINGS} at most.", rankings),
            "rho": ("Mean correlation of retriever and readout scores over these.", rho),
            "rho_calibrated": ("The same at calibration.", known_rho),
            "rho_drift": (
                f"Their difference: the weight is no longer the best one as it grows; {RECALIBRATE}.",
                rho - known_rho,
            ),
            "readout_spread": ("Mean width of the readout's scores in a list over these.", width),
            "readout_spread_calibrated": ("The same at calibration.", known_width),
            "readout_spread_ratio": (
                f"Their ratio: away from 1, pages or queries have changed; {RECALIBRATE}.",
                width / known_width,
            ),
        }
        mode: Literal["livesum", "livemostrecent"]
        for mode, gauges in (("livesum", sums), ("livemostrecent", latest)):
            for name, (meaning, value) in gauges.items():
                if name not in self._gauges:
                    self._gauges[name] = Gauge(
                        f"ridgerank_{name}", meaning, registry=self._registry, multiprocess_mode=mode
                    )
                self._gauges[name].set(value)
