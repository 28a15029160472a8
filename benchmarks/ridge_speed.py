"""What a path of ten penalties costs beside one scikit-learn fit, at the paper's size, for three spectra.

python -m benchmarks.ridge_speed [--out results/ridge_speed.json]

Even states have independent normal coordinates. States of language models are not even: in the second case
five directions are 10³ to 10⁴ times as long as the others. The third is the worst: eigenvalues that fall
evenly over twelve decades.
"""

import argparse
import resource
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sklearn.linear_model import Ridge
from threadpoolctl import threadpool_info

from benchmarks.report import interleaved_times, publish
from ridgerank.ragged import Floats
from ridgerank.readout.moments import CenteredMoments
from ridgerank.readout.ridge import PENALTIES, ridge_path

LISTS, CANDIDATES, DIM = 154, 20, 3584
LENGTHS: dict[str, Floats] = {
    "even": np.ones(DIM),
    "five huge directions": np.concatenate([np.logspace(4, 3, 5), np.ones(DIM - 5)]),
    "falling over twelve decades": np.logspace(2, -4, DIM),
}
"""How long the states are in each direction; eigenvalues go as the squares."""


@dataclass(frozen=True, slots=True)
class Case:
    """One spectrum, measured."""

    path_seconds: float
    """Median time of ten penalties."""
    ratio: float
    """Median time of ten penalties over median time of one fit."""
    low: float
    high: float
    """The same turn by turn, 10 to 90 %."""
    difference: float
    """At penalty 1000, relative to the largest weight."""


def measure(lengths: Floats, *, repeats: int) -> Case:
    """Time both on the same centered data, and compare what they find."""
    generator = np.random.default_rng(0)
    moments = CenteredMoments(DIM)
    lists = []
    # Directions across coordinates, none along one: a reflection does that and is cheap.
    mirror = generator.standard_normal(DIM)
    mirror /= np.linalg.norm(mirror)
    for _ in range(LISTS):
        states = generator.standard_normal((CANDIDATES, DIM)) * lengths
        states -= 2.0 * np.outer(states @ mirror, mirror)
        targets = generator.standard_normal(CANDIDATES)
        moments.add(states, targets)
        lists.append((states - states.mean(axis=0), targets - targets.mean()))
    H, t = np.vstack([states for states, _ in lists]), np.concatenate([targets for _, targets in lists])
    peer = Ridge(alpha=1000.0, fit_intercept=False, solver="cholesky")
    times = interleaved_times(
        {"ten penalties": lambda: ridge_path(moments), "one scikit-learn fit": lambda: peer.fit(H, t)},
        repeats=repeats,
    )
    path_seconds, fit_seconds = np.array(times["ten penalties"]), np.array(times["one scikit-learn fit"])
    low, high = np.quantile(path_seconds / fit_seconds, [0.1, 0.9]).tolist()
    fitted = ridge_path(moments)[int(np.flatnonzero(PENALTIES == 1000.0)[0])]
    difference = float(np.abs(fitted - peer.coef_).max() / np.abs(peer.coef_).max())
    median = float(np.median(path_seconds))
    return Case(median, median / float(np.median(fit_seconds)), low, high, difference)


def main() -> None:
    """Measure every spectrum."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--repeats", type=int, default=25)
    arguments = parser.parse_args()
    print(f"{LISTS * CANDIDATES} pairs x {DIM} dimensions, {len(PENALTIES)} penalties")
    cases = {}
    for name, lengths in LENGTHS.items():
        case = cases[name] = measure(lengths, repeats=arguments.repeats)
        print(f"{name:28} {case.path_seconds:.2f} s, {case.ratio:.2f}x one scikit-learn Cholesky fit", end="")
        print(f" (10 to 90 % of turns {case.low:.2f}x to {case.high:.2f}x)", end="")
        print(f", relative difference at penalty 1000: {case.difference:.1e}", flush=True)
    even, *others = cases
    publish(
        {
            "pairs": LISTS * CANDIDATES,
            "dimensions": DIM,
            "penalties": len(PENALTIES),
            "turns": arguments.repeats,
            "threads": max(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"),
            **report(cases[even]),
            "other_spectra": {name: report(cases[name]) for name in others},
            "peak_memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        },
        arguments.out,
    )


def report(case: Case) -> dict[str, object]:
    """A case as JSON has it."""
    return {
        "path_seconds": round(case.path_seconds, 3),
        "time_over_one_sklearn_cholesky_fit": round(case.ratio, 3),
        "from_10_to_90_percent_of_turns": [round(case.low, 3), round(case.high, 3)],
        "relative_difference": case.difference,
    }


if __name__ == "__main__":
    main()
