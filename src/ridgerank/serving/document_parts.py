"""Documents and queries of any shape, taken apart: what names a page, what is text, what is an image."""

import re
from dataclasses import dataclass

from ridgerank.documents.sources import source_page_names
from ridgerank.serving.http_errors import ApiError
from ridgerank.serving.schemas.document_schemas import (
    Document,
    IdDocument,
    ImageDocument,
    ImagePart,
    ItemDocument,
    PageDocument,
    Query,
    SourceDocument,
    TextDocument,
    TextPart,
)

_EDGES = "".join(map(chr, range(33))) + "\x7f\x85\xa0\u200b\u2028\u2029\ufeff"
"""White space and control characters, which no name of a page starts or ends with."""
_DATA_FORM = re.compile(r"data:(?:[^\s,]*,|[a-z]+/[a-z])", re.IGNORECASE)


def is_data_uri(text: str) -> bool:
    """Whether a text is a data URI, of whatever kind, in any case; `Data: see below` is a text."""
    return _DATA_FORM.match(text.lstrip(_EDGES)) is not None


@dataclass(frozen=True, slots=True)
class DocumentParts:
    """What a document says."""

    page_names: tuple[str, ...] = ()
    """Names of a stored page, in a field of their own, tried in this order."""
    text: str | None = None
    image: str | None = None
    """A data URI, or base64 alone."""

    @property
    def possible_names(self) -> tuple[str, ...]:
        """What may name a stored page: the fields made for it, or a text that comes without an image."""
        if self.page_names or self.text is None or self.image is not None:
            return self.page_names
        # A line of a file with other line ends still names its page.
        return tuple(dict.fromkeys((self.text, self.text.strip(_EDGES))))


def take_apart(document: Document | Query) -> DocumentParts:
    """The parts of a document or a query."""
    match document:
        case str():
            is_image = is_data_uri(document)
            return DocumentParts(image=document) if is_image else DocumentParts(text=document)
        case PageDocument():
            return DocumentParts(page_names=(document.page,))
        case IdDocument():
            return DocumentParts(page_names=(document.id,))
        case SourceDocument():
            return DocumentParts(page_names=source_page_names(document.source, document.page))
        case TextDocument():
            return DocumentParts(text=document.text)
        case ImageDocument():
            return DocumentParts(text=document.text, image=document.image)
        case ItemDocument():
            is_image = document.type == "image"
            return DocumentParts(image=document.value) if is_image else DocumentParts(text=document.value)
    texts = [part.text for part in document.content if isinstance(part, TextPart)]
    images = [part.image_url.url for part in document.content if isinstance(part, ImagePart)]
    return DocumentParts(text="\n".join(texts) or None, image=images[0] if images else None)


def query_text(query: Query) -> str:
    """The text of a query; one with an image is refused."""
    parts = take_apart(query)
    if parts.image is not None or parts.text is None:
        raise ApiError(422, "image_query", "a query with an image; wanted text alone: pages are what is seen")
    return parts.text
