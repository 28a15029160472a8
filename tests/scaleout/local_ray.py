"""A Ray cluster of this machine alone, for the tests: two workers, a small object store, nothing reported."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from ridgerank.indexing.ray import ClusterWorkers

TWO_WORKERS = ClusterWorkers(2, {"num_cpus": 1, "num_gpus": 0})
_START_SECONDS = 120.0
_ATTEMPTS = 3


@contextmanager
def two_workers(folder: Path) -> Iterator[Any]:
    """Start a cluster, yield Ray's module connected to it, stop both."""
    quiet = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled", "OMP_NUM_THREADS": "1"}
    os.environ.update(quiet)
    import ray

    head = _started(ray, folder)
    try:
        yield ray
    finally:
        ray.shutdown()
        _stop(head)


def _started(ray: Any, folder: Path) -> "subprocess.Popen[bytes]":  # noqa: ANN401 (Ray's module)
    """Start a cluster and connect to it; on a busy machine a first try may come to nothing."""
    for attempt in range(_ATTEMPTS):
        attempt_folder = folder / str(attempt)
        attempt_folder.mkdir()
        head, address = _start(attempt_folder)
        if _connects(ray, address, head):
            return head
        _stop(head)
    raise AssertionError(f"the cluster did not start: {(attempt_folder / 'start.log').read_text()[-2000:]}")


def _start(folder: Path) -> "tuple[subprocess.Popen[bytes], str]":
    # Ports that are known beforehand: on a busy machine Ray gives up waiting for its agents to tell theirs.
    names = ("port", "dashboard-agent-grpc-port", "dashboard-agent-listen-port", "metrics-export-port")
    ports = dict(zip((*names, "runtime-env-agent-port"), free_ports(len(names) + 1), strict=True))
    settings = {
        "node-ip-address": "127.0.0.1",
        "include-dashboard": "false",
        "num-cpus": "4",
        "object-store-memory": str(150 << 20),
        "temp-dir": str(folder),
        **{name: str(port) for name, port in ports.items()},
    }
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block"]
    command += [word for name, value in settings.items() for word in (f"--{name}", value)]
    with (folder / "start.log").open("w") as log:
        head = subprocess.Popen(command, stdout=log, stderr=log)
    return head, f"127.0.0.1:{ports['port']}"


def _stop(head: "subprocess.Popen[bytes]") -> None:
    """End what was started, and nothing else."""
    if head.poll() is not None:
        return
    started = psutil.Process(head.pid).children(recursive=True)
    head.kill()  # asked to stop, it would wait half a minute for its children
    head.wait(60)
    for process in started:
        with suppress(psutil.NoSuchProcess):
            process.kill()


def _connects(ray: Any, address: str, head: "subprocess.Popen[bytes]") -> bool:  # noqa: ANN401
    until = time.monotonic() + _START_SECONDS
    while head.poll() is None and time.monotonic() < until:
        try:
            ray.init(address=address, log_to_driver=False, logging_level="ERROR")
        except (ConnectionError, RuntimeError):
            time.sleep(1)
        else:
            return True
    return False


def workers(kind: str) -> list[psutil.Process]:
    """The processes of actors whose name, as Ray shows it, contains `kind`."""
    processes = []
    for process in psutil.Process().children(recursive=True):  # not those of another test session's cluster
        with suppress(psutil.NoSuchProcess):
            command = " ".join(process.cmdline())
            if command.startswith("ray::") and kind in command:
                processes.append(process)
    return processes


def kill_worker(kind: str) -> None:
    """SIGKILL one of them."""
    alive = workers(kind)
    assert alive, f"no worker of {kind} to kill"
    alive[0].send_signal(signal.SIGKILL)


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for bound in sockets:
        bound.bind(("127.0.0.1", 0))
    ports = [bound.getsockname()[1] for bound in sockets]
    for bound in sockets:
        bound.close()
    return ports
