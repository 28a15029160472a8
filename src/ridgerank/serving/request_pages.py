"""Documents of a rerank request made candidates: stored pages by name, the rest decoded when its turn comes.

A bare string names a stored page, by id or reference. One that has the form of such a name and is not stored
is refused: ranking its letters would be no service. Any other string is a text, drawn on a page for a
model that looks at pages and read as it is by one that reads text. Nothing here opens a file or an address.
"""

import base64
import binascii
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass

from PIL import Image, ImageDraw, ImageFont

from ridgerank.documents.images import decode_image
from ridgerank.documents.pages import page_from_image
from ridgerank.errors import DocumentError
from ridgerank.ranking.candidates import CandidateLike
from ridgerank.records import Page
from ridgerank.serving.http_errors import Refusal, no_such_page
from ridgerank.serving.schemas.document_schemas import (
    Document,
    IdDocument,
    ImageDocument,
    PageDocument,
    ReturnedDocument,
    TextDocument,
    TextPart,
)
from ridgerank.serving.schemas.shared_schemas import MAX_TEXT
from ridgerank.serving.serve_settings import Settings
from ridgerank.store.page_store import PageStore

_PAGE_NAME = re.compile(r"[0-9a-f]{64}|[^\n]{1,400}#[0-9]{1,9}")
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S*")
_DATA_URI = re.compile(r"data:image/(png|jpeg|jpg|webp|tiff);base64,")
_PAPER = (850, 1100)
_MARGIN = 50
_FONT_PIXELS = 18
_COLUMNS = 84
_LINES = 44


@dataclass(frozen=True, slots=True)
class Attached:
    """A document that is no stored page."""

    kind: str
    """`text`, or the kind of image."""
    data: str
    """The text, or the image in base64."""


@dataclass(frozen=True, slots=True, eq=False)
class Offer:
    """A request's documents, in their order."""

    names: tuple[str, ...]
    """The page id of each, or the name of what is attached."""
    attached: Mapping[str, Attached]
    sent: tuple[ReturnedDocument, ...]

    def candidates(self, scores: Sequence[float] | None) -> list[CandidateLike]:
        """What `Reranker.prepare` takes."""
        if scores is None:
            return list(self.names)
        return list(zip(self.names, scores, strict=True))


def read_offer(documents: Sequence[Document], store: PageStore, settings: Settings) -> Offer:
    """Find each document, or refuse the request with the place of the first that cannot be had."""
    names: list[str] = []
    attached: dict[str, Attached] = {}
    sent: list[ReturnedDocument] = []
    for place, document in enumerate(documents):
        where = f"documents[{place}]"
        found = _stored(document, store)
        if found is not None:
            names.append(found)
            sent.append(ReturnedDocument(page=store.reference(found), text=_text_of(document)))
            continue
        one = _attachment(document, where)
        if not settings.encode_missing:
            raise Refusal(
                422,
                "not_stored",
                f"{where} is no stored page, and this server ranks stored pages only; index it, or start the "
                "server with --encode-missing",
            )
        name = f"{where} of this request"
        names.append(name)
        attached[name] = one
        is_text = one.kind == "text"
        sent.append(ReturnedDocument(text=one.data if is_text else None, image=None if is_text else one.kind))
    if len(attached) > settings.limits.images:
        raise Refusal(
            422,
            "too_many_images",
            f"{len(attached)} documents are not stored, more than the {settings.limits.images} this server "
            "encodes for a request; index them",
        )
    return Offer(tuple(names), attached, tuple(sent))


class Pages(Mapping[str, Page]):
    """What is attached to a request, each made a page when it is asked for: one in memory at a time."""

    def __init__(
        self,
        attached: Mapping[str, Attached],
        go_on: Callable[[], None],
        *,
        max_pixels: int,
        image_pixels: int,
        page_ids: MutableMapping[str, str],
    ) -> None:
        """`go_on` is called before each, and `page_ids` gets the id of every page made, by name."""
        self._attached = attached
        self._go_on = go_on
        self._max_pixels = max_pixels
        self._image_pixels = image_pixels
        self._page_ids = page_ids

    def __getitem__(self, name: str) -> Page:
        one = self._attached[name]
        self._go_on()
        try:
            page = self._page(one, name)
        except DocumentError as error:
            raise DocumentError(f"{name}: {error}") from error
        self._page_ids[name] = page.page_id
        return page

    def __contains__(self, name: object) -> bool:
        return name in self._attached

    def __iter__(self) -> Iterator[str]:
        return iter(self._attached)

    def __len__(self) -> int:
        return len(self._attached)

    def _page(self, one: Attached, name: str) -> Page:
        if one.kind == "text":
            return page_from_image(draw_text(one.data), name, max_pixels=self._max_pixels, text=one.data)
        try:
            data = base64.b64decode(one.data, validate=True)
        except binascii.Error as error:
            raise DocumentError(f"not base64 ({error}); encode the image's bytes again") from error
        image = decode_image(data, max_pixels=self._image_pixels)
        return page_from_image(image, name, max_pixels=self._max_pixels)


def draw_text(text: str) -> Image.Image:
    """A text as a page: black on white, lines wrapped; one that does not fit is refused."""
    lines = [line for part in text.splitlines() for line in textwrap.wrap(part, _COLUMNS) or [""]]
    if len(lines) > _LINES:
        raise DocumentError(
            f"a text of {len(lines)} lines of {_COLUMNS} characters, more than the {_LINES} of a page; "
            "send less of it"
        )
    image = Image.new("RGB", _PAPER, "white")
    font = ImageFont.load_default(_FONT_PIXELS)
    ImageDraw.Draw(image).multiline_text((_MARGIN, _MARGIN), "\n".join(lines), fill="black", font=font)
    return image


def _stored(document: Document, store: PageStore) -> str | None:
    """The page id behind a document that names a stored page; what can only be a name must be known."""
    if isinstance(document, PageDocument | IdDocument):
        name = document.page if isinstance(document, PageDocument) else document.id
        found = store.lookup(name)
        if found is None:
            raise no_such_page(name)
        return found
    text = _text_of(document)
    if text is None:
        return None
    found = store.lookup(text)
    if found is None and _PAGE_NAME.fullmatch(text):
        raise no_such_page(text)
    return found


def _text_of(document: Document) -> str | None:
    """What a document says in letters, None where it is an image or the name of a page."""
    if isinstance(document, str):
        return None if document.startswith("data:") else document
    if isinstance(document, TextDocument):
        return document.text
    if isinstance(document, PageDocument | IdDocument | ImageDocument):
        return None
    [part] = document.content
    return part.text if isinstance(part, TextPart) else None


def _attachment(document: Document, where: str) -> Attached:
    text = _text_of(document)
    if text is None:
        return _image(_uri_of(document), where)
    if _ADDRESS.fullmatch(text.strip()):
        raise _remote(where)
    if len(text) > MAX_TEXT:
        raise Refusal(
            422, "bad_document", f"{where} has {len(text):,} characters; wanted {MAX_TEXT:,} at most"
        )
    return Attached("text", text)


def _uri_of(document: Document) -> str:
    if isinstance(document, str):
        return document
    if isinstance(document, ImageDocument):
        return document.image
    parts = [] if isinstance(document, PageDocument | IdDocument | TextDocument) else document.content
    [uri] = [part.image_url.url for part in parts if not isinstance(part, TextPart)]
    return uri


def _image(uri: str, where: str) -> Attached:
    opening = _DATA_URI.match(uri)
    if opening is not None:
        return Attached(f"image/{opening[1]}", uri[opening.end() :])
    if uri.startswith("data:"):
        raise Refusal(
            422, "bad_document", f"{where} is no data URI of a PNG, JPEG, WebP or TIFF image in base64"
        )
    raise _remote(where)


def _remote(where: str) -> Refusal:
    return Refusal(
        422, "remote_address", f"{where} is an address; nothing is fetched from elsewhere: send a data URI"
    )
