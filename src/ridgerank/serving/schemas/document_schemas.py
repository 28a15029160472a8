"""The documents a caller may send: stored pages, texts, images."""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field, StringConstraints, model_validator

from ridgerank.serving.schemas.shared_schemas import (
    MAX_DATA_URI,
    MAX_DOCUMENTS,
    DataUri,
    Name,
    QueryText,
    RequestModel,
    ResponseModel,
    Score,
    Text,
)

MAX_PARTS = 16


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
    """A page as an image: a data URI or base64, with a text that goes with it or without.

    Remote addresses are never fetched.
    """

    image: DataUri = Field(examples=["data:image/png;base64,iVBORw0KGgo…"])
    text: Text | None = None


class SourceDocument(RequestModel):
    """A stored page, by its file and its number from 1, as chunks of text pipelines name it."""

    source: Name = Field(examples=["report.pdf"])
    page: int = Field(ge=1, le=10**9, examples=[3])


class ItemDocument(RequestModel):
    """A text or an image, as Elasticsearch has it."""

    type: Literal["text", "image"]
    format: Literal["text", "base64"] | None = Field(default=None, description="As `type` has it by default.")
    value: DataUri

    @model_validator(mode="after")
    def _check_format(self) -> "ItemDocument":
        wanted = "text" if self.type == "text" else "base64"
        if self.format not in (None, wanted):
            raise ValueError(f"an item of type {self.type} in format {self.format}; wanted {wanted}")
        return self


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
    """A document in parts, as vLLM has it: at most one image, and texts."""

    content: list[Annotated[TextPart | ImagePart, Field(discriminator="type")]] = Field(
        min_length=1, max_length=MAX_PARTS
    )

    @model_validator(mode="after")
    def _check_images(self) -> "PartsDocument":
        images = sum(isinstance(part, ImagePart) for part in self.content)
        if images > 1:
            raise ValueError(f"{images} images in one document; wanted one at most: a page is one image")
        return self


Document: TypeAlias = (
    Annotated[str, StringConstraints(min_length=1, max_length=MAX_DATA_URI, pattern=r"\S")]
    | PageDocument
    | IdDocument
    | TextDocument
    | ImageDocument
    | SourceDocument
    | ItemDocument
    | PartsDocument
)
"""A stored page, a text, or an image as a data URI or base64."""

Query: TypeAlias = QueryText | TextDocument | ItemDocument | PartsDocument
"""A query: text, in any of the shapes that documents have."""

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
