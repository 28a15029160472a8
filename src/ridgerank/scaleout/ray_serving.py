"""The app of `serving/` as a Ray Serve deployment: replicas, each with its model and its page cache.

A deployment serves one corpus or several, each a store with a name. A request names its corpus in the header
`serve_multiplexed_model_id`; Serve then prefers replicas that have this corpus open and its pages in memory.
Without the header the first corpus is used.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ridgerank.reranker.options import RerankerOptions
from ridgerank.serving.serve_settings import ServeSettings

if TYPE_CHECKING:
    from fastapi import FastAPI

    from ridgerank.backbones.base import Backbone
    from ridgerank.backbones.model_settings import ModelSettings

Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
Application = Callable[[Any, Receive, Send], Awaitable[None]]

_HEALTH_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class ServePlan:
    """What a replica opens, and how."""

    stores: Mapping[str, str]
    """Corpus → store; the first is for requests that name no corpus."""
    settings: ServeSettings
    options: RerankerOptions = field(default_factory=RerankerOptions)
    """How each store is opened; each open corpus has a cache of this size."""
    corpora_per_replica: int = 2
    """Corpora a replica has open at once; the least recently used is closed first."""


@dataclass(frozen=True, slots=True)
class Replicas:
    """How many replicas there may be, and the resources of each."""

    min_replicas: int = 1
    max_replicas: int = 1
    target_requests: float = 2.0
    """Requests per replica at a time; with more, Serve starts another replica."""
    num_cpus: float = 1.0
    num_gpus: float = 0.0


def deploy(plan: ServePlan, replicas: Replicas, *, host: str, port: int) -> None:
    """Start the deployment on the cluster that is connected, and return when it answers."""
    from ray import serve

    def application() -> Application:
        # Called on each replica; Serve accepts only a plain function as a builder.
        return ReplicaCorpora(plan).application()

    serve.start(http_options={"host": host, "port": port})
    deployment = serve.deployment(serve.ingress(application)()).options(
        name="ridgerank",
        max_ongoing_requests=plan.settings.limits.admitted,
        autoscaling_config={
            "min_replicas": replicas.min_replicas,
            "max_replicas": replicas.max_replicas,
            "target_ongoing_requests": replicas.target_requests,
        },
        ray_actor_options={"num_cpus": replicas.num_cpus, "num_gpus": replicas.num_gpus},
        health_check_timeout_s=_HEALTH_SECONDS,
    )
    serve.run(deployment.bind(), name="ridgerank", route_prefix="/")


def undeploy() -> None:
    """Stop the deployment and what Serve started for it."""
    from ray import serve

    serve.shutdown()


class ReplicaCorpora:
    """The open corpora of one replica."""

    def __init__(self, plan: ServePlan) -> None:
        self._plan = plan
        self._backbones: dict[ModelSettings, Backbone] = {}

    def application(self) -> Application:
        """An ASGI application that passes each request to the application of its corpus."""
        from ray import serve

        @serve.multiplexed(max_num_models_per_replica=self._plan.corpora_per_replica)  # type: ignore[untyped-decorator]
        async def corpus(name: str) -> "_OpenCorpus":
            return await asyncio.to_thread(self.open, name)

        first = next(iter(self._plan.stores))

        async def dispatch(scope: Any, receive: Receive, send: Send) -> None:  # noqa: ANN401 (ASGI's)
            if scope["type"] == "lifespan":
                await _handle_lifespan(receive, send)
                return
            name = serve.get_multiplexed_model_id() or first
            if name not in self._plan.stores:
                await _respond_unknown_corpus(name, self._plan.stores, scope, receive, send)
                return
            opened = await corpus(name)
            await opened.app(scope, receive, send)

        return dispatch

    def open(self, name: str) -> "_OpenCorpus":
        """Open a corpus; corpora with the same model share it."""
        from ridgerank.backbones.model_settings import ModelSettings
        from ridgerank.serving.build import open_service
        from ridgerank.store.page_store import PageStore

        uri, options = self._plan.stores[name], self._plan.options
        with PageStore.open(uri) as store:
            model = ModelSettings.from_lineage(
                store.lineage, name=options.backbone, device=options.device, dtype=options.dtype
            )
        if model not in self._backbones:
            self._backbones[model] = model.load()
        # A replica is a process of its own already: its workers are threads, one unless told.
        settings = replace(self._plan.settings, workers=self._plan.settings.workers or 1, processes=False)
        return _OpenCorpus(open_service(uri, options, settings, backbone=self._backbones[model]))


class _OpenCorpus:
    """A service and its app, closed when Serve drops it."""

    def __init__(self, service: Any) -> None:  # noqa: ANN401 (FastAPI is imported on replicas only)
        from ridgerank.serving.app import create_app

        self._service = service
        self.app: FastAPI = create_app(service, close=False)

    def __del__(self) -> None:
        self._service.close()


async def _handle_lifespan(receive: Receive, send: Send) -> None:
    """ASGI's lifespan: nothing to do, corpora are opened by their first request."""
    while True:
        kind = (await receive())["type"].removeprefix("lifespan.")
        await send({"type": f"lifespan.{kind}.complete"})
        if kind == "shutdown":
            return


async def _respond_unknown_corpus(
    name: str,
    stores: Mapping[str, str],
    scope: Any,  # noqa: ANN401
    receive: Receive,
    send: Send,
) -> None:
    from starlette.responses import JSONResponse

    known = ", ".join(sorted(stores))
    message = f"no corpus called {name[:100]!r}; there are: {known}"
    await JSONResponse({"message": message, "code": "unknown_corpus", "fields": []}, 404)(
        scope, receive, send
    )
