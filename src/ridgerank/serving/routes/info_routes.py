"""What the server is and how it fares."""

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST

from ridgerank.serving import http_errors
from ridgerank.serving.middleware import WORK_PATHS
from ridgerank.serving.responses import calibration_answer, store_answer
from ridgerank.serving.routes.error_responses import ANY, errors
from ridgerank.serving.schemas.info_schemas import CalibrationAnswer, Health, Model, ModelsAnswer, StoreAnswer
from ridgerank.serving.service import Service


def router(service: Service) -> APIRouter:
    """The paths of one service."""
    routes = APIRouter(responses=errors(*ANY))

    @routes.get("/v1/store", summary="The page store at a glance")
    def store() -> StoreAnswer:
        """Pages, bytes, and what they were made with."""
        return store_answer(service)

    @routes.get("/v1/calibration", summary="The calibration's report")
    def calibration() -> CalibrationAnswer:
        """How readout and weight came about."""
        return calibration_answer(service)

    @routes.get("/v1/models", summary="The model this server ranks with")
    def models() -> ModelsAnswer:
        """One model, whatever name requests carry."""
        return ModelsAnswer(
            data=[
                Model(
                    id=service.model,
                    created=service.started,
                    owned_by="ridgerank",
                    endpoints=sorted(WORK_PATHS),
                )
            ]
        )

    @routes.get("/healthz", summary="Whether the server lives")
    async def healthz() -> Health:
        """Answers as long as the process does."""
        return Health(status="ok")

    @routes.get("/readyz", summary="Whether the server takes requests", responses=errors(503))
    async def readyz() -> Health:
        """Refused while shutting down."""
        if service.engine.closing:
            raise http_errors.closing()
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
