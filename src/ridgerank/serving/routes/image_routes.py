"""Pages as people see them."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Header, Path, Response

from ridgerank.serving.page_images import PIXELS, Picture
from ridgerank.serving.routes.error_responses import ANY, errors
from ridgerank.serving.schemas.shared_schemas import PAGE_ID
from ridgerank.serving.service import Service

PageId = Annotated[str, Path(pattern=PAGE_ID, description="64 hex digits, as results have it.")]
Known = Annotated[str | None, Header(alias="If-None-Match", max_length=1000)]
_KEEP = "private, max-age=86400, immutable"
_IMAGE: dict[int | str, dict[str, object]] = {
    200: {
        "description": "The image.",
        "content": {
            kind: {"schema": {"type": "string", "format": "binary"}}
            for kind in ("image/png", "image/jpeg", "image/webp")
        },
    },
    304: {"description": "As the caller has it."},
}


def router(service: Service) -> APIRouter:
    """The paths of one service."""
    routes = APIRouter(prefix="/v1/pages", responses=errors(*ANY, 404, 422, 429))

    @routes.get("/{page_id}/image", summary="A page, rendered", response_class=Response, responses=_IMAGE)
    async def image(page_id: PageId, known: Known = None) -> Response:
        """The page at reading size, rendered from the document it was indexed from."""
        coming = service.pictures.image(page_id)
        etag = f'"{page_id}-{PIXELS}"'  # an id is a digest of the content, so it serves as one of the image
        if known == etag:
            return _unchanged(etag)
        return _sent(await asyncio.shield(asyncio.wrap_future(coming)), etag)

    @routes.get("/{page_id}/thumbnail", summary="A page, small", response_class=Response, responses=_IMAGE)
    async def thumbnail(page_id: PageId, known: Known = None) -> Response:
        """The small image the store holds."""
        etag = f'"{page_id}-thumbnail"'
        picture = await asyncio.to_thread(service.pictures.thumbnail, page_id)
        return _unchanged(etag) if known == etag else _sent(picture, etag)

    return routes


def _sent(picture: Picture, etag: str) -> Response:
    headers = {"ETag": etag, "Cache-Control": _KEEP}
    return Response(picture.data, media_type=picture.media_type, headers=headers)


def _unchanged(etag: str) -> Response:
    return Response(status_code=304, headers={"ETag": etag, "Cache-Control": _KEEP})
