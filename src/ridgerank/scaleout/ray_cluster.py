"""The one door to Ray: connecting, and how many workers it has.

Workers have the environment of their machine: credentials of an object store come from there, as here.
"""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ridgerank.errors import BackboneError, ClusterError
from ridgerank.extras import require_packages

LOCAL = "local"
"""The address that means: a cluster of this machine alone, for as long as the command runs."""


@dataclass(frozen=True, slots=True)
class ClusterWorkers:
    """How many workers there are, and the resources of each."""

    count: int
    num_cpus: float
    num_gpus: float

    @property
    def resources(self) -> dict[str, float]:
        """The resources of one worker, as keyword arguments of Ray."""
        return {"num_cpus": self.num_cpus, "num_gpus": self.num_gpus}


@contextmanager
def connect_ray(address: str) -> Iterator[Any]:
    """Ray's module, connected to a cluster; a local cluster is stopped at the end."""
    # No usage statistics are sent unless the environment says so.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    require_packages("ray")
    import ray
    import ray.data

    # After the import, which sets its level: progress is shown by our bar alone.
    logging.getLogger("ray.data").setLevel(logging.WARNING)
    started_here = not ray.is_initialized()
    if started_here:
        try:
            ray.init(
                address=None if address == LOCAL else address,
                include_dashboard=False if address == LOCAL else None,
                log_to_driver=False,
                logging_level=logging.WARNING,
            )
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise ClusterError(
                f"no Ray cluster at {address!r}: {error}; start one with `ray start --head`, or say {LOCAL!r}"
            ) from error
    try:
        yield ray
    finally:
        if started_here:
            ray.shutdown()


def plan_workers(ray: Any, workers: int | None, device: str | None) -> ClusterWorkers:  # noqa: ANN401 (Ray's module)
    """A worker for every GPU of the cluster, or for every CPU where there are none or `device` says so."""
    resources = ray.cluster_resources()
    gpus = 0 if device == "cpu" else int(resources.get("GPU", 0))
    if device is not None and device.startswith("cuda") and not gpus:
        raise BackboneError("no GPU in the Ray cluster; leave --device out, or add machines that have one")
    limit = gpus or int(resources.get("CPU", 1))
    return ClusterWorkers(min(workers or limit, limit), 1.0, 1.0 if gpus else 0.0)


@contextmanager
def translate_ray_errors(doing: str, *, safe: str) -> Iterator[None]:
    """Turn an error of Ray into a `ClusterError`: what failed (`doing`) and what is kept (`safe`)."""
    from ray.exceptions import RayError

    try:
        yield
    except RayError as error:
        lines = str(error).strip().splitlines()
        raise ClusterError(
            f"{doing} on Ray failed: {lines[-1] if lines else type(error).__name__}; {safe}: run it again"
        ) from error
