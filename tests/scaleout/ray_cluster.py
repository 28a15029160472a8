"""A Ray cluster of this machine alone, for the tests: two workers, a small object store, nothing reported."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from ridgerank.scaleout.cluster import Crew

CREW = Crew(workers=2, num_cpus=1.0, num_gpus=0.0)
_START_SECONDS = 240.0


@contextmanager
def two_workers(folder: Path) -> Iterator[Any]:
    """Start a cluster, yield Ray's module connected to it, stop both."""
    quiet = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled", "OMP_NUM_THREADS": "1"}
    os.environ.update(quiet)
    import ray

    # Ports that are known beforehand: on a busy machine Ray gives up waiting for its agents to tell theirs.
    names = ("port", "dashboard-agent-grpc-port", "dashboard-agent-listen-port", "metrics-export-port")
    ports = dict(zip((*names, "runtime-env-agent-port"), _free_ports(len(names) + 1), strict=True))
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
    try:
        _connect(ray, f"127.0.0.1:{ports['port']}", head)
        yield ray
    finally:
        ray.shutdown()
        started = psutil.Process(head.pid).children(recursive=True)
        head.send_signal(signal.SIGTERM)
        head.wait(60)
        for process in started:
            if process.is_running():
                process.kill()


def _connect(ray: Any, address: str, head: "subprocess.Popen[bytes]") -> None:  # noqa: ANN401 (Ray's module)
    until = time.monotonic() + _START_SECONDS
    while True:
        assert head.poll() is None, "the cluster did not start"
        try:
            ray.init(address=address, log_to_driver=False, logging_level="ERROR")
        except (ConnectionError, RuntimeError):
            if time.monotonic() > until:
                raise
            time.sleep(1)
        else:
            return


def workers(kind: str) -> list[psutil.Process]:
    """The processes of actors whose name, as Ray shows it, contains `kind`."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        command = " ".join(process.info["cmdline"] or [])
        if command.startswith("ray::") and kind in command:
            found.append(process)
    return found


def kill_one(kind: str) -> None:
    """SIGKILL one of them."""
    alive = workers(kind)
    assert alive, f"no worker of {kind} to kill"
    alive[0].send_signal(signal.SIGKILL)


def _free_ports(count: int) -> list[int]:
    bound = [socket.socket() for _ in range(count)]
    for one in bound:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in bound]
    for one in bound:
        one.close()
    return ports
