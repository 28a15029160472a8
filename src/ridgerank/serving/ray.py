"""The same app as a deployment of Ray Serve: replicas, each with its model, its page cache and its queue."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ridgerank.indexing.ray import ClusterWorkers
from ridgerank.reranker.options import RerankerOptions
from ridgerank.serving.settings import ServeSettings

if TYPE_CHECKING:
    from fastapi import FastAPI

_HEALTH_SECONDS = 30.0
_REQUESTS_PER_REPLICA = 2.0
"""With more at a time, Serve starts another replica."""


def deploy(
    stores: Mapping[str, str],
    options: RerankerOptions,
    settings: ServeSettings,
    *,
    replicas: tuple[int, int],
    worker: ClusterWorkers,
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
        health_check_timeout_s=_HEALTH_SECONDS,
    )
    serve.run(deployment.bind(), name="ridgerank", route_prefix="/")


def undeploy() -> None:
    """Stop the deployment and what Serve started for it."""
    from ray import serve

    serve.shutdown()
