"""Pages as people see them: rendered at reading size, and as thumbnails."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Header, Path, Response

from ridgerank.serving.page_images import EncodedImage, image_etag, thumbnail_etag
from ridgerank.serving.routes.error_responses import ANY_ROUTE, error_responses
from ridgerank.serving.routes.search_links import PAGE_IMAGE, PAGE_THUMBNAIL
from ridgerank.serving.schemas.shared_schemas import PAGE_ID
from ridgerank.serving.service import Service

PageId = Annotated[str, Path(pattern=PAGE_ID, description="64 hex digits, as results have it.")]
IfNoneMatch = Annotated[str | None, Header(alias="If-None-Match", max_length=1000)]
_CACHE_CONTROL = "private, max-age=86400, immutable"
_IMAGE_RESPONSES: dict[int | str, dict[str, object]] = {
    200: {
        "description": "The image.",
        "content": {
            media_type: {"schema": {"type": "string", "format": "binary"}}
            for media_type in ("image/png", "image/jpeg", "image/webp")
        },
    },
    304: {"description": "As the caller has it."},
}


def image_router(service: Service) -> APIRouter:
    """The routes of one service's page images."""
    routes = APIRouter(prefix="/v1/pages", responses=error_responses(*ANY_ROUTE, 404, 422, 429))
    images = service.page_images

    @routes.get(
        "/{page_id}/image",
        summary="A page, rendered",
        operation_id=PAGE_IMAGE,
        response_class=Response,
        responses=_IMAGE_RESPONSES,
    )
    async def image(page_id: PageId, if_none_match: IfNoneMatch = None) -> Response:
        """The page at reading size, rendered from the document it was indexed from."""
        etag = image_etag(page_id)
        await asyncio.to_thread(images.require_page, page_id)
        if _has_current(if_none_match, etag):
            return _not_modified(etag)
        return _image_response(await asyncio.shield(asyncio.wrap_future(images.render(page_id))), etag)

    @routes.get(
        "/{page_id}/thumbnail",
        summary="A page, small",
        operation_id=PAGE_THUMBNAIL,
        response_class=Response,
        responses=_IMAGE_RESPONSES,
    )
    async def thumbnail(page_id: PageId, if_none_match: IfNoneMatch = None) -> Response:
        """The small image the store holds."""
        etag = thumbnail_etag(page_id)
        await asyncio.to_thread(images.require_page, page_id)
        if _has_current(if_none_match, etag):
            return _not_modified(etag)
        return _image_response(await asyncio.to_thread(images.thumbnail, page_id), etag)

    return routes


def _has_current(if_none_match: str | None, etag: str) -> bool:
    """Whether the caller's If-None-Match header, a list of tags or `*`, covers the current tag."""
    tags = [tag.strip().removeprefix("W/") for tag in (if_none_match or "").split(",")]
    return etag in tags or tags == ["*"]


def _image_response(image: EncodedImage, etag: str) -> Response:
    headers = {"ETag": etag, "Cache-Control": _CACHE_CONTROL}
    return Response(image.data, media_type=image.media_type, headers=headers)


def _not_modified(etag: str) -> Response:
    return Response(status_code=304, headers={"ETag": etag, "Cache-Control": _CACHE_CONTROL})
