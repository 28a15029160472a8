"""How long a query takes over stored pages, beside full passes over the same candidates, in one run.

Times are processor time of this process on one thread: other load on the machine changes it far less than
wall-clock time. Methods take turns, question by question.
"""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from benchmarks.onnx_cross_encoder import OnnxCrossEncoder
from ridgerank.backbones.base import Backbone
from ridgerank.backbones.dense_prefixes import DensePrefixes
from ridgerank.records import STATES, Page, State
from ridgerank.store.compress import compress
from ridgerank.store.layout import PackedPrefix, pack, unpack
from ridgerank.store.pruning import Keep
from ridgerank.store.stored_prefixes import StoredPrefixes

_REPEATS = 3
"""Of the fast methods; full passes are run once per question."""


def measure_speed(
    backbone: Backbone,
    questions: Sequence[tuple[str, Sequence[Page]]],
    *,
    exit_layer: int,
    keeps: Sequence[str],
    cross_encoder: OnnxCrossEncoder | None,
) -> dict[str, Any]:
    """Median seconds per question of each method, and the median of the ratios to full passes."""
    seconds: dict[str, list[float]] = {}
    for query, pages in questions:
        for name, spent in _time_question(backbone, query, pages, exit_layer, keeps, cross_encoder).items():
            seconds.setdefault(name, []).append(spent)
    full = seconds["full passes"]
    faster = {
        name: round(statistics.median(a / b for a, b in zip(full, times, strict=True)), 1)
        for name, times in seconds.items()
        if name != "full passes"
    }
    medians = {name: round(statistics.median(times), 3) for name, times in seconds.items()}
    return {"questions": len(questions), "processor_seconds": medians, "times_faster": faster}


def print_speed(measured: Mapping[str, Any]) -> None:
    """Print the speeds as a table."""
    print(f"processor seconds a query of one thread, {measured['questions']} questions:")
    for name, seconds in measured["processor_seconds"].items():
        faster = measured["times_faster"].get(name)
        print(f"{name:64} {seconds:8.3f}" + (f"   {faster:.1f}x" if faster else ""))


def _time_question(
    backbone: Backbone,
    query: str,
    pages: Sequence[Page],
    exit_layer: int,
    keeps: Sequence[str],
    cross_encoder: OnnxCrossEncoder | None,
) -> Mapping[str, float]:
    layers = backbone.geometry.layers
    start = time.process_time()
    # One page at a time, as a CPU likes it; the library's own batches would be padded.
    contents = [backbone.content(page) for page in pages]
    full = [backbone.encode([content], exit_layer=layers)[0] for content in contents]
    backbone.targets([query], DensePrefixes(full), targets=("likelihood",))
    spent = {"full passes": time.process_time() - start}
    for keep in keeps:
        stored = [
            unpack(pack(compress(prefix.layers(0, exit_layer), page.image, Keep.parse(keep))))
            for prefix, page in zip(full, pages, strict=True)
        ]
        for state in STATES:
            spent[f"{keep}, {state}"] = _median_time(partial(_run_shallow, backbone, query, stored, state))
    if cross_encoder is not None:
        start = time.process_time()
        cross_encoder.score(query, [page.text for page in pages])
        spent["cross encoder"] = time.process_time() - start
    return spent


def _run_shallow(backbone: Backbone, query: str, stored: Sequence[PackedPrefix], state: State) -> None:
    backbone.states([query], StoredPrefixes.of(stored, join_layer=0), state=state)


def _median_time(run: Callable[[], object]) -> float:
    times = []
    for _ in range(_REPEATS):
        start = time.process_time()
        run()
        times.append(time.process_time() - start)
    return statistics.median(times)
