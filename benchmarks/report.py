"""How a benchmark says what it found: a table for people, one JSON line for machines, a file to keep."""

import json
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ridgerank.atomic import replace_text_file


def interleaved_times(arms: Mapping[str, Callable[[], object]], *, repeats: int) -> dict[str, list[float]]:
    """Seconds of each run of each arm; they take turns, so that a busy machine is busy for all of them."""
    seconds: dict[str, list[float]] = {name: [] for name in arms}
    for _ in range(repeats):
        for name, run in arms.items():
            start = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - start)
    return seconds


def interleaved_seconds(arms: Mapping[str, Callable[[], object]], *, repeats: int) -> dict[str, float]:
    """Median seconds of each arm, the arms taking turns."""
    times = interleaved_times(arms, repeats=repeats)
    return {name: statistics.median(own) for name, own in times.items()}


def publish(result: Mapping[str, Any], out: Path | None) -> None:
    """Print the result as one line of JSON; keep it where `out` says."""
    print(json.dumps(result))
    if out is not None:
        with replace_text_file(out) as file:
            file.write(json.dumps(result, indent=2) + "\n")
