"""A service on a port: one process with uvicorn, or several below uvicorn's own supervisor.

Each process has a model, a page cache and a queue of its own. Whatever runs, a process ends within ten
seconds of a signal. Torch is imported late, so that a worker soon answers its supervisor.
"""

import logging
import math
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread, Timer
from types import FrameType
from typing import TYPE_CHECKING, Any, SupportsIndex

import uvicorn
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess

from ridgerank.errors import RidgeRankError, ServingError
from ridgerank.processes import usable_cores
from ridgerank.reranker.options import RerankerOptions
from ridgerank.serving.settings import SHARED_FOLDER, ServeSettings

if TYPE_CHECKING:
    from fastapi import FastAPI

    from ridgerank.indexing.ray import ClusterWorkers
    from ridgerank.serving.service import Service
    from ridgerank.serving.stores import ServedStore

log = logging.getLogger(__name__)

END_SECONDS = 9.5
"""From a signal to the end of the process, at the most."""
GRACE_SECONDS = 8
"""How long admitted requests may take to finish after a signal."""
_REPLICA_HEALTH_SECONDS = 30.0
_REQUESTS_PER_REPLICA = 2.0
"""With more at a time, Serve starts another replica."""
_HEALTH_SECONDS = 30
"""A worker that does not answer its supervisor for this long is replaced."""


def default_workers(device: str, model_bytes: int) -> int:
    """Two on a CPU with memory for twenty such models, because one process leaves cores idle; else one.

    Threads of one process take turns at Python, so that two of them gain far less than two processes.
    """
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(2, usable_cores()) if device == "cpu" and 20 * model_bytes <= memory else 1


def bind(host: str, port: int) -> socket.socket:
    """A socket at an address; port 0 takes a free port."""
    # Told that it is TCP, asyncio sends small packets at once. Else an answer waits 40 ms for its second one.
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise ServingError(
            f"cannot listen on {host}:{port} ({error.strerror or error}); end what listens there, or use "
            "another port"
        ) from error
    return bound


class _WorkerSocket(socket.socket):
    """An address; in a worker, which unpickles it, it is a socket of the worker's own at that address.

    The kernel then spreads connections over the workers. Of one socket that all share, whichever worker wakes
    up first takes every connection that waits: eight callers got half of the answers.
    """

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:  # noqa: ANN401 (pickle's)
        return _bind_again, (self.family, self.getsockname())


def _bind_again(family: int, address: Any) -> _WorkerSocket:  # noqa: ANN401 (as the family has it)
    bound = _WorkerSocket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    bound.bind(address)
    return bound


def _share_address(listening: socket.socket) -> socket.socket:
    """A socket for several workers in place of one that nobody else may bind."""
    if sys.platform != "linux":  # elsewhere connections to one address are not spread
        return listening
    family, address = listening.family, listening.getsockname()
    listening.close()
    return _bind_again(family, address)


def serve(
    stores: Mapping[str, str],
    options: RerankerOptions,
    settings: ServeSettings,
    listening: socket.socket,
    *,
    workers: int | None = None,
    started: "Callable[[Sequence[ServedStore], int], None]" = lambda stores, workers: None,
) -> None:
    """Serve calibrated stores by name until SIGTERM or Ctrl-C, then finish what was admitted.

    The stores are opened here first, so that what is wrong with them is raised here; `started` is told of
    them and of the number of workers. Workers divide the page cache, the cores and the admitted requests.
    """
    import torch

    from ridgerank.serving.service import Service
    from ridgerank.serving.stores import open_stores

    opened = open_stores(stores, options, judge=settings.judge)
    backbone = next(store.state.reranker.backbone for store in opened if store.is_open)
    workers = workers or default_workers(backbone.device.type, backbone.nbytes)
    started(opened, workers)
    if workers == 1:
        app = partial(_make_app, partial(Service, opened, settings), settings)
        uvicorn.Server(server_config(app, settings)).run(sockets=[listening])
        return
    del opened, backbone  # each worker loads its own
    # The kernel spreads connections by chance, so a worker admits half as many again as its share.
    admitted = min(settings.limits.admitted, math.ceil(1.5 * settings.limits.admitted / workers))
    limits = replace(settings.limits, admitted=admitted)
    settings = replace(settings, limits=limits)
    options = replace(options, cache_bytes=options.cache_bytes // workers)
    threads = max(1, torch.get_num_threads() // workers)
    app = partial(_make_worker_app, dict(stores), options, settings, threads)
    listening = _share_address(listening)
    with TemporaryDirectory(prefix="ridgerank-workers-") as folder:
        os.environ[SHARED_FOLDER] = folder
        supervisor = Multiprocess(server_config(app, settings, workers=workers), sockets=[listening])
        end_in_time(partial(_end_workers, supervisor, signal.SIGTERM), partial(_end_workers, supervisor))
        supervisor.run()
    if any(process.exitcode == STARTUP_FAILURE for process in supervisor.processes):
        raise ServingError("a worker could not start; its message above says why")


def server_config(
    app: "FastAPI | Callable[[], FastAPI]", settings: ServeSettings, *, workers: int = 1
) -> uvicorn.Config:
    """What uvicorn is told; `app` is the application, or makes it when the server runs."""
    return uvicorn.Config(
        app,
        factory=isinstance(app, partial),
        workers=workers,
        http="h11",  # it bounds the head of a request
        ws="none",
        log_level="error",  # its warnings come at a caller's will
        access_log=False,
        server_header=False,
        proxy_headers=False,
        h11_max_incomplete_event_size=settings.limits.header_bytes,
        timeout_graceful_shutdown=GRACE_SECONDS,
        timeout_worker_healthcheck=_HEALTH_SECONDS,
    )


def _make_worker_app(
    stores: Mapping[str, str], options: RerankerOptions, settings: ServeSettings, threads: int
) -> "FastAPI":
    """The application of a worker. What stops the first of them to start would stop all others, too."""
    import torch

    from ridgerank.serving.service import Service
    from ridgerank.serving.stores import open_stores

    torch.set_num_threads(threads)
    some_started = Path(os.environ[SHARED_FOLDER], "started")
    try:
        opened = open_stores(stores, options, judge=settings.judge)
        app = _make_app(partial(Service, opened, settings), settings)
    except RidgeRankError as error:
        log.error("%s", error)
        raise SystemExit(1 if some_started.exists() else STARTUP_FAILURE) from error
    some_started.touch()
    return app


def _make_app(make_service: "Callable[[], Service]", settings: ServeSettings) -> "FastAPI":
    """The application of this process; called by uvicorn after it has set its handlers of signals."""
    from ridgerank.serving.app import create_app
    from ridgerank.serving.logs import log_json

    if settings.json_logs:
        log_json()
    service = make_service()
    end_in_time(partial(service.engine.close, seconds=END_SECONDS), service.page_images.end_processes)
    return create_app(service, close_seconds=1.0)


def end_in_time(begin: Callable[[], None], end: Callable[[], None]) -> None:
    """On a signal `begin` to end, beside what the signal did before; after `END_SECONDS`, `end` at once.

    A running call of torch cannot be stopped from a thread, so the process then exits whatever runs.
    """

    def handle(before: Any, number: int, frame: FrameType | None) -> None:  # noqa: ANN401 (signal's)
        # Locks may be held by the interrupted code, so threads do what needs them.
        Thread(target=begin, daemon=True).start()
        timer = Timer(END_SECONDS, end_now, args=[number])
        timer.daemon = True
        timer.start()
        if callable(before):
            before(number, frame)

    def end_now(number: int) -> None:
        log.error("not done %g s after the signal; the server ends now", END_SECONDS)
        ending = Thread(target=end, daemon=True)
        ending.start()
        ending.join(0.3)
        os._exit(128 + number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, partial(handle, signal.getsignal(number)))


def _end_workers(supervisor: Multiprocess, number: int = signal.SIGKILL) -> None:
    """Tell the workers at once: the supervisor may be waiting for one that does not answer it."""
    supervisor.should_exit.set()
    for process in supervisor.processes:
        if process.exitcode is None and process.pid is not None:
            with suppress(ProcessLookupError):
                os.kill(process.pid, number)


def deploy(
    stores: Mapping[str, str],
    options: RerankerOptions,
    settings: ServeSettings,
    *,
    replicas: tuple[int, int],
    worker: "ClusterWorkers",
    host: str,
    port: int,
) -> None:
    """Start the deployment on the cluster that is connected, and return when it answers.

    There are at least as many replicas as the first of `replicas` says, and at most as many as the second;
    `worker` has the resources of each.
    """
    from ray import serve

    def make_app() -> "FastAPI":
        # Called on each replica; Serve accepts only a plain function as a builder.
        from ridgerank.serving.app import create_app
        from ridgerank.serving.service import Service
        from ridgerank.serving.stores import open_stores

        return create_app(Service(open_stores(stores, options), settings))

    serve.start(http_options={"host": host, "port": port})
    deployment = serve.deployment(serve.ingress(make_app)()).options(
        name="ridgerank",
        max_ongoing_requests=settings.limits.admitted,
        autoscaling_config={
            "min_replicas": replicas[0],
            "max_replicas": replicas[1],
            "target_ongoing_requests": _REQUESTS_PER_REPLICA,
        },
        ray_actor_options=worker.resources,
        health_check_timeout_s=_REPLICA_HEALTH_SECONDS,
    )
    serve.run(deployment.bind(), name="ridgerank", route_prefix="/")
