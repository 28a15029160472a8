"""The documents a caller may send: stored pages, texts, images."""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field, StringConstraints

from ridgerank.serving.schemas.shared_schemas import (
    MAX_DATA_URI,
    MAX_DOCUMENTS,
    DataUri,
    Name,
    RequestModel,
    ResponseModel,
    Score,
    Text,
)


class PageDocument(RequestModel):
    """A stored page, by id or reference."""

    page: Name = Field(examples=["report.pdf#3"])


class IdDocument(RequestModel):
    """A stored page, by id or reference, under the name other clients use."""

    id: Name


class TextDocument(RequestModel):
    """A text; like a bare string it may name a stored page."""

    text: Text


class ImageDocument(RequestModel):
    """A page as an image: a data URI. Remote addresses are never fetched."""

    image: DataUri = Field(examples=["data:image/png;base64,iVBORw0KGgo…"])


class ImageUrl(RequestModel):
    """The address of an image, as vLLM and OpenAI have it; only data URIs are accepted."""

    url: DataUri
    detail: Literal["auto", "low", "high"] | None = None


class TextPart(RequestModel):
    """A text part of a document."""

    type: Literal["text"]
    text: Text


class ImagePart(RequestModel):
    """An image part of a document."""

    type: Literal["image_url"]
    image_url: ImageUrl


class PartsDocument(RequestModel):
    """A document in parts, as vLLM has it: one image, or one text."""

    content: list[Annotated[TextPart | ImagePart, Field(discriminator="type")]] = Field(
        min_length=1, max_length=1
    )


Document: TypeAlias = (
    Annotated[str, StringConstraints(min_length=1, max_length=MAX_DATA_URI, pattern=r"\S")]
    | PageDocument
    | IdDocument
    | TextDocument
    | ImageDocument
    | PartsDocument
)
"""A stored page, a text, or an image as a data URI."""

Scores: TypeAlias = Annotated[
    list[Score],
    Field(
        max_length=MAX_DOCUMENTS,
        description="The first stage's score of each document, in their order: an extension of RidgeRank.",
    ),
]


class ReturnedDocument(ResponseModel):
    """A document as it was sent; of an image only that it was one."""

    text: str | None = None
    page: str | None = None
    image: str | None = Field(default=None, description="The media type of the image, without its bytes.")
