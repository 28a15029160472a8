"""Fusing two runs against ranx, compiled, for the same z-scores and weighted sum.

python -m benchmarks.fusion_speed [--out results/fusion_speed.json]
"""

import argparse
import tracemalloc
from pathlib import Path

import numpy as np
import ranx

from benchmarks.report import interleaved_seconds, publish
from ridgerank.fusion.join import fuse_runs, join
from ridgerank.runs.run import Run

QUERIES, CANDIDATES, PAGES, WEIGHT = 10_000, 100, 50_000, 0.3


def random_runs() -> list[dict[str, dict[str, float]]]:
    """Two runs over the same candidates, scored independently."""
    generator = np.random.default_rng(0)
    pages = [f"report-{number // 40}.pdf#{number % 40 + 1}" for number in range(PAGES)]
    runs: list[dict[str, dict[str, float]]] = [{}, {}]
    for query in range(QUERIES):
        chosen = [pages[number] for number in generator.choice(PAGES, CANDIDATES, replace=False)]
        for run in runs:
            run[f"q{query}"] = dict(zip(chosen, generator.standard_normal(CANDIDATES).tolist(), strict=True))
    return runs


def main() -> None:
    """Time both on runs already in memory, in each library's own form, and check that they agree."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    scored = random_runs()
    ours = [Run.of_dict(run) for run in scored]
    ranx_runs = [ranx.Run(run, name=f"run{number}") for number, run in enumerate(scored)]

    def fuse_with_ridgerank() -> Run:
        return fuse_runs(join(*ours), WEIGHT)

    def fuse_with_ranx() -> object:
        return ranx.fuse(runs=ranx_runs, norm="zmuv", method="wsum", params={"weights": (1 - WEIGHT, WEIGHT)})

    compiled = fuse_with_ranx()  # numba compiles at the first call
    first = "q0"
    peer = {page: float(score) for page, score in compiled.run[first].items()}  # type: ignore[attr-defined]
    difference = max(
        abs(fuse_with_ridgerank().to_dict()[first][page] - score) for page, score in peer.items()
    )
    seconds = interleaved_seconds(
        {"ridgerank": fuse_with_ridgerank, "ranx": fuse_with_ranx}, repeats=arguments.repeats
    )
    ratio = seconds["ridgerank"] / seconds["ranx"]
    tracemalloc.start()
    fuse_with_ridgerank()
    peak = tracemalloc.get_traced_memory()[1]
    print(f"{QUERIES} queries x {CANDIDATES} candidates, two runs")
    print(f"time over ranx, compiled: {ratio:.2f}x (bar: at most 1x)")
    print(f"peak memory of fusing: {peak / 2**20:.0f} MiB; largest difference of a score: {difference:.1e}")
    publish(
        {
            "queries": QUERIES,
            "candidates": CANDIDATES,
            "time_over_ranx_compiled": round(ratio, 3),
            "bar": 1.0,
            "peak_memory_mib": round(peak / 2**20),
            "largest_score_difference": difference,
        },
        arguments.out,
    )


if __name__ == "__main__":
    main()
