"""A whole path of ten penalties against one scikit-learn fit, at the paper's size.

python -m benchmarks.ridge_speed [--out results/ridge_speed.json]
"""

import argparse
import resource
from pathlib import Path

import numpy as np
from sklearn.linear_model import Ridge

from benchmarks.report import interleaved_times, publish
from ridgerank.readout.moments import CenteredMoments
from ridgerank.readout.ridge import PENALTIES, ridge_path

LISTS, CANDIDATES, DIM = 154, 20, 3584
BAR = 1.5


def main() -> None:
    """Time both on the same centered data, and check that they agree."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--repeats", type=int, default=25)
    arguments = parser.parse_args()
    generator = np.random.default_rng(0)
    moments = CenteredMoments(DIM)
    lists = []
    for _ in range(LISTS):
        states, targets = generator.standard_normal((CANDIDATES, DIM)), generator.standard_normal(CANDIDATES)
        moments.add(states, targets)
        lists.append((states - states.mean(axis=0), targets - targets.mean()))
    H, t = np.vstack([states for states, _ in lists]), np.concatenate([targets for _, targets in lists])
    peer = Ridge(alpha=1000.0, fit_intercept=False, solver="cholesky")
    times = interleaved_times(
        {"ten penalties": lambda: ridge_path(moments), "one scikit-learn fit": lambda: peer.fit(H, t)},
        repeats=arguments.repeats,
    )
    ours, theirs = np.array(times["ten penalties"]), np.array(times["one scikit-learn fit"])
    ratio = float(np.median(ours) / np.median(theirs))
    low, high = np.quantile(ours / theirs, [0.1, 0.9]).tolist()
    fitted = ridge_path(moments)[int(np.flatnonzero(PENALTIES == 1000.0)[0])]
    difference = float(np.abs(fitted - peer.coef_).max() / np.abs(peer.coef_).max())
    print(f"{LISTS * CANDIDATES} pairs x {DIM} dimensions, {len(PENALTIES)} penalties")
    print(f"time over one scikit-learn Cholesky fit: {ratio:.2f}x (bar: at most {BAR}x)")
    print(f"from turn to turn, 10 to 90 %: {low:.2f}x to {high:.2f}x")
    print(f"largest relative difference at penalty 1000: {difference:.1e}")
    publish(
        {
            "pairs": LISTS * CANDIDATES,
            "dimensions": DIM,
            "penalties": len(PENALTIES),
            "time_over_one_sklearn_cholesky_fit": round(ratio, 3),
            "from_10_to_90_percent_of_turns": [round(low, 3), round(high, 3)],
            "bar": BAR,
            "relative_difference": difference,
            "peak_memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        },
        arguments.out,
    )


if __name__ == "__main__":
    main()
