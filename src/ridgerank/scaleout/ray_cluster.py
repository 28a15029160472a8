"""The one door to Ray: connecting, and which models its workers load.

Workers have the environment of their machine: credentials of an object store come from there, as here.
"""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ridgerank.errors import BackboneError, ClusterError, ExtraMissing

if TYPE_CHECKING:
    from ridgerank.backbones.base import Backbone

LOCAL = "local"
"""The address that means: a cluster of this machine alone, for as long as the command runs."""


@dataclass(frozen=True, slots=True)
class ModelPlan:
    """A backbone as a worker loads it."""

    name: str
    device: str | None = None
    dtype: str | None = None
    max_pixels: int | None = None
    page_text: str | None = None
    prompt: str | None = None

    def load(self) -> "Backbone":
        """Load it here."""
        from ridgerank.backbones.load import load_backbone, parse_dtype

        return load_backbone(
            self.name,
            device=self.device,
            dtype=parse_dtype(self.dtype),
            max_pixels=self.max_pixels,
            page_text=self.page_text,
            prompt=self.prompt,
        )


@dataclass(frozen=True, slots=True)
class Crew:
    """How many workers there are, and what each of them takes."""

    workers: int
    num_cpus: float
    num_gpus: float

    @property
    def resources(self) -> dict[str, float]:
        """As Ray takes them."""
        return {"num_cpus": self.num_cpus, "num_gpus": self.num_gpus}


@contextmanager
def connected(address: str) -> Iterator[Any]:
    """Ray's module, connected to a cluster; one that was started for this is stopped at the end."""
    # Nothing is reported to anyone unless whoever runs this has asked for it.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise ExtraMissing("this needs Ray: `pip install 'ridgerank[ray]'`") from error
    # After the import, which sets a level of its own: there is one bar here, and it is ours.
    logging.getLogger("ray.data").setLevel(logging.WARNING)
    mine = not ray.is_initialized()
    if mine:
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
        if mine:
            ray.shutdown()


def crew_of(ray: Any, workers: int | None, device: str | None) -> Crew:  # noqa: ANN401 (Ray's module)
    """A worker for every GPU of the cluster, or for every CPU where there are none or `device` says so."""
    have = ray.cluster_resources()
    gpus = 0 if device == "cpu" else int(have.get("GPU", 0))
    if device is not None and device.startswith("cuda") and not gpus:
        raise BackboneError("no GPU in the Ray cluster; leave --device out, or add machines that have one")
    most = gpus or int(have.get("CPU", 1))
    return Crew(min(workers or most, most), 1.0, 1.0 if gpus else 0.0)


@contextmanager
def telling(doing: str, *, safe: str) -> Iterator[None]:
    """Turn what Ray raises into a `ClusterError` that says what was being done, and what is not lost."""
    from ray.exceptions import RayError

    try:
        yield
    except RayError as error:
        lines = str(error).strip().splitlines()
        raise ClusterError(
            f"{doing} on Ray failed: {lines[-1] if lines else type(error).__name__}; {safe}: run it again"
        ) from error
