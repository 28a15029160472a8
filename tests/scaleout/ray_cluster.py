"""A Ray cluster of this machine, two CPUs, for the tests."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psutil

from ridgerank.scaleout.cluster import Crew

CREW = Crew(workers=2, num_cpus=1.0, num_gpus=0.0)


@contextmanager
def two_workers() -> Iterator[Any]:
    """Start it, yield Ray's module, stop it."""
    # Workers import the code under test from where this process does.
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
    import ray

    ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False, object_store_memory=150 << 20)
    try:
        yield ray
    finally:
        ray.shutdown()


def workers(kind: str) -> list[psutil.Process]:
    """The processes of actors that do a kind of work, by what Ray calls them."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if kind in " ".join(process.cmdline()):
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found
