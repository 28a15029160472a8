"""Metrics for Prometheus: where time goes, what is refused, and whether scores drift from the calibration."""

import math
from collections import deque
from collections.abc import Callable, Iterator
from threading import Lock

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ridgerank.byte_lru import CacheCounts
from ridgerank.calibration.artifact import Calibration
from ridgerank.fusion.correlations import correlate
from ridgerank.fusion.standardize import standard_deviations
from ridgerank.ragged import Ragged
from ridgerank.records import Ranking
from ridgerank.serving.engine import Engine
from ridgerank.serving.jobs import RankingResult
from ridgerank.serving.tracing import STEPS

DRIFT_RANKINGS = 256
"""Drift is a mean over this many rankings, the last ones."""
MIN_DRIFT_PAGES = 5
"""A shorter list says next to nothing about a correlation."""
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
RECALIBRATE = "to calibrate on what is searched for: ridgerank calibrate --traffic LOG"


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


class Metrics(Collector):
    """The metrics of one server, in a registry of its own."""

    def __init__(
        self, engine: Engine, calibration: Calibration, cache_counts: Callable[[], CacheCounts]
    ) -> None:
        self._engine = engine
        self._calibration = calibration
        self._cache_counts = cache_counts
        self.drift = Drift()
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "ridgerank_requests", "Requests by route and status.", ["route", "status"], registry=self.registry
        )
        self._latency = Histogram(
            "ridgerank_step_seconds",
            "Where the time of a request went; shared passes count in full for each.",
            ["step"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._total = Histogram(
            "ridgerank_request_seconds",
            "Time of an answered request, as the server saw it.",
            ["route"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._batch_jobs = Histogram(
            "ridgerank_requests_together",
            "Requests taken by a worker at once, as each of them saw it.",
            buckets=(1, 2, 4, 8, 16, 32),
            registry=self.registry,
        )
        self._refused = Counter(
            "ridgerank_refused", "Requests not admitted (429).", ["route"], registry=self.registry
        )
        self._hang_ups = Counter(
            "ridgerank_left", "Callers that hung up before their answer.", registry=self.registry
        )
        self.registry.register(self)

    def record_request(self, route: str, status: int, seconds: float) -> None:
        """Count a finished request."""
        self._requests.labels(route, str(status)).inc()
        if status == 429:
            self._refused.labels(route).inc()
        if status < 400:
            self._total.labels(route).observe(seconds)

    def record_hang_up(self) -> None:
        """Count a caller who hung up."""
        self._hang_ups.inc()

    def record_ranking(self, result: RankingResult) -> None:
        """Count a ranking: its time, its batch and its scores."""
        latency = result.ranking.latency
        times = (result.queue_ms, *(getattr(latency, f"{step}_ms") for step in STEPS[1:]))
        for step, time_ms in zip(STEPS, times, strict=True):
            self._latency.labels(step).observe(time_ms / 1000)
        self._batch_jobs.observe(result.batch_jobs)
        self.drift.record(result.ranking, scored=result.candidates.scored)

    def text(self) -> bytes:
        """All metrics, in Prometheus' text format."""
        return generate_latest(self.registry)

    def collect(self) -> Iterator[Metric]:
        """Read what is counted elsewhere, when Prometheus asks for it."""
        counts = self._cache_counts()
        for name, count in (("hits", counts.hits), ("misses", counts.misses)):
            yield CounterMetricFamily(f"ridgerank_cache_{name}", f"Page cache {name}.", value=count)
        rho, width, rankings = self.drift.means()
        calibration = self._calibration
        known_rho, known_width = calibration.weight.rho, calibration.diagnostics.readout_spread
        gauges = {
            "cache_pages": ("Pages in the page cache.", counts.pages),
            "cache_bytes": ("Bytes in the page cache.", counts.nbytes),
            "admitted": ("Requests waiting or being worked on.", self._engine.admitted),
            "admitted_limit": ("Requests that may be.", self._engine.limits.admitted),
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
        for name, (meaning, value) in gauges.items():
            yield GaugeMetricFamily(f"ridgerank_{name}", meaning, value=value)
