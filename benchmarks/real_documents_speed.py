"""What a query and a page cost: stored pages, full passes and a trained cross encoder, in one run.

Times are processor time of this process on one thread: other load on the machine changes it far less than
wall-clock time. Methods take turns, question by question. Retrieval counts in every query; what is done once
for a page, before any query, is reported by itself.
"""

import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.real_documents_questions import DocumentIndex, Question
from ridgerank.atomic import replace_text_file
from ridgerank.backbones.base import Backbone
from ridgerank.backbones.dense_prefixes import DensePrefixes
from ridgerank.backbones.prefix import Prefix
from ridgerank.calibration.onnx_cross_encoder import OnnxCrossEncoder
from ridgerank.records import STATES, Page, State
from ridgerank.store.compress import compress
from ridgerank.store.layout import PackedPrefix, pack, unpack
from ridgerank.store.pruning import Keep
from ridgerank.store.stored_prefixes import StoredPrefixes

FULL, CROSS, RETRIEVAL = "full passes", "cross encoder", "retrieval"
_REPEATS = 3
"""Of the fast methods; full passes are run once per question."""
_OFFLINE_PAGES = 4
"""Pages per question whose indexing is timed."""
_FILE = "latency.json"


def measure_speed_once(
    questions: Sequence[Question],
    documents: Mapping[str, Sequence[Page]],
    backbone: Backbone,
    folder: Path,
    *,
    exit_layer: int,
    keeps: Sequence[str],
    cross_encoder: Path | None,
    count: int,
) -> None:
    """Time one question of each document, kinds in turns, and save the times, unless that is done."""
    methods = {RETRIEVAL, *(f"{keep}, {STATES[0]}" for keep in keeps), *([CROSS] if cross_encoder else [])}
    first = {question.document: question for question in reversed(questions)}
    timed = [question for question in questions if first[question.document] is question][:count]
    known = read_speed(folder)
    if known and known["questions"] >= len(timed) and methods <= set(known["processor_seconds"]):
        return
    print(f"timing {len(timed)} questions", flush=True)
    torch.set_num_threads(1)
    speed = measure_speed(
        backbone,
        [(question.text, documents[question.document]) for question in timed],
        exit_layer=exit_layer,
        keeps=keeps,
        cross_encoder=OnnxCrossEncoder(cross_encoder) if cross_encoder else None,
    )
    with replace_text_file(folder / _FILE) as file:
        file.write(json.dumps(speed))


def read_speed(folder: Path) -> dict[str, Any]:
    """The times that were saved; empty where there are none."""
    path = folder / _FILE
    speed: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return speed


def measure_speed(
    backbone: Backbone,
    questions: Sequence[tuple[str, Sequence[Page]]],
    *,
    exit_layer: int,
    keeps: Sequence[str],
    cross_encoder: OnnxCrossEncoder | None,
) -> dict[str, Any]:
    """Median seconds of each method, and median ratios to full passes and to the cross encoder.

    A question comes with all pages of its document. Retrieval counts in all seconds and ratios.
    """
    seconds: dict[str, list[float]] = {}
    offline: dict[str, list[float]] = {}
    for query, pages in questions:
        timed, indexed = _time_question(backbone, query, pages, exit_layer, keeps, cross_encoder)
        for name, spent in timed.items():
            seconds.setdefault(name, []).append(spent)
        for name, spent in indexed.items():
            offline.setdefault(name, []).append(spent)
    return {
        "questions": len(questions),
        "processor_seconds": {name: round(statistics.median(times), 4) for name, times in seconds.items()},
        "times_faster": _ratios(seconds, FULL),
        "times_faster_than_cross_encoder": _ratios(seconds, CROSS),
        "offline_seconds_a_page": {
            name: round(statistics.median(times), 3) for name, times in offline.items()
        },
    }


def print_speed(measured: Mapping[str, Any]) -> None:
    """Print the speeds as a table."""
    print(f"processor seconds a query of one thread, {measured['questions']} questions:")
    for name, seconds in measured["processor_seconds"].items():
        faster = measured["times_faster"].get(name)
        print(f"{name:64} {seconds:8.3f}" + (f"   {faster:.1f}x" if faster else ""))
    for name, seconds in measured["offline_seconds_a_page"].items():
        print(f"{'once for a page, ' + name:64} {seconds:8.3f}")


def _ratios(seconds: Mapping[str, Sequence[float]], reference: str) -> dict[str, float]:
    """How many times faster each method is, question by question: the median."""
    if reference not in seconds:
        return {}
    return {
        name: round(statistics.median(a / b for a, b in zip(seconds[reference], times, strict=True)), 1)
        for name, times in seconds.items()
        if name not in (reference, RETRIEVAL, FULL)
    }


def _time_question(
    backbone: Backbone,
    query: str,
    document: Sequence[Page],
    exit_layer: int,
    keeps: Sequence[str],
    cross_encoder: OnnxCrossEncoder | None,
) -> tuple[Mapping[str, float], Mapping[str, float]]:
    """Seconds of each method on one query, retrieval included, and seconds to index a page."""
    index = DocumentIndex(document)
    order, _ = index.find(query)
    pages = [document[row] for row in order]
    retrieval = _median_time(partial(index.find, query))
    start = time.process_time()
    # One page at a time, as a CPU likes it; the library's own batches would be padded.
    full = [_encode(backbone, page, backbone.geometry.layers) for page in pages]
    backbone.targets([query], DensePrefixes(full), targets=("likelihood",))
    spent = {FULL: time.process_time() - start}
    few = pages[:_OFFLINE_PAGES]
    start = time.process_time()
    encoded = [_encode(backbone, page, exit_layer) for page in few]
    encoding = time.process_time() - start
    offline = {}
    for keep in keeps:
        start = time.process_time()
        for prefix, page in zip(encoded, few, strict=True):
            pack(compress(prefix, page.image, Keep.parse(keep)))
        offline[keep] = (encoding + time.process_time() - start) / len(few)
        stored = [
            unpack(pack(compress(prefix.layers(0, exit_layer), page.image, Keep.parse(keep))))
            for prefix, page in zip(full, pages, strict=True)
        ]
        for state in STATES:
            spent[f"{keep}, {state}"] = _median_time(partial(_run_shallow, backbone, query, stored, state))
    if cross_encoder is not None:
        start = time.process_time()
        cross_encoder.score(query, [page.text for page in pages])
        spent[CROSS] = time.process_time() - start
    return {RETRIEVAL: retrieval} | {name: value + retrieval for name, value in spent.items()}, offline


def _encode(backbone: Backbone, page: Page, layers: int) -> Prefix:
    return backbone.encode([backbone.content(page)], exit_layer=layers)[0]


def _run_shallow(backbone: Backbone, query: str, stored: Sequence[PackedPrefix], state: State) -> None:
    backbone.states([query], StoredPrefixes.of(stored, join_layer=0), state=state)


def _median_time(run: Callable[[], object]) -> float:
    times = []
    for _ in range(_REPEATS):
        start = time.process_time()
        run()
        times.append(time.process_time() - start)
    return statistics.median(times)
