"""What the server is: store, calibration, model, health, metrics."""

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST

from ridgerank.serving.middleware import WORK_PATHS
from ridgerank.serving.responses import calibration_response, store_response
from ridgerank.serving.routes.error_responses import ANY_ROUTE, error_responses
from ridgerank.serving.schemas.info_schemas import (
    CalibrationResponse,
    Health,
    Model,
    ModelsResponse,
    QueueStats,
    StoreResponse,
)
from ridgerank.serving.service import Service, base_name


def info_router(service: Service) -> APIRouter:
    """The routes about one service."""
    routes = APIRouter(responses=error_responses(*ANY_ROUTE))

    @routes.get("/v1/store", summary="The page store at a glance")
    def store() -> StoreResponse:
        """Pages, bytes, and the model they were made with."""
        return store_response(service)

    @routes.get("/v1/calibration", summary="The calibration's report")
    def calibration() -> CalibrationResponse:
        """How readout and weight were fitted."""
        return calibration_response(service)

    @routes.get("/v1/models", summary="The model this server ranks with")
    @routes.get("/models", summary="The model this server ranks with (infinity)")
    def models() -> ModelsResponse:
        """One model, under whatever name requests ask for it."""
        engine = service.engine
        return ModelsResponse(
            data=[
                Model(
                    id=service.model,
                    created=service.started,
                    owned_by="ridgerank",
                    endpoints=sorted(WORK_PATHS),
                    root=base_name(service.reranker.backbone.name),
                    stats=QueueStats(
                        queue_fraction=engine.admitted / engine.limits.admitted,
                        queue_absolute=engine.admitted,
                        results_pending=engine.admitted,
                        batch_size=engine.limits.batch_jobs,
                    ),
                )
            ]
        )

    @routes.get("/healthz", summary="Whether the server runs")
    @routes.get("/health", summary="Whether the server runs (vLLM, TEI, infinity)")
    @routes.get("/ping", summary="Whether the server runs (SageMaker)")
    async def healthz() -> Health:
        """Answers as long as the process runs."""
        return Health(status="ok")

    @routes.get("/readyz", summary="Whether the server takes requests", responses=error_responses(503))
    def readyz() -> Health:
        """Refused while shutting down, while no worker is ready and while the store cannot be read."""
        service.readiness.require()
        return Health(status="ready")

    @routes.get(
        "/metrics",
        summary="Counts for Prometheus",
        response_class=Response,
        responses={
            200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "Counts."}
        },
    )
    def metrics() -> Response:
        """Prometheus' text format."""
        return Response(service.metrics.text(), media_type=CONTENT_TYPE_LATEST)

    return routes
