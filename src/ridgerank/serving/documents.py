"""The documents of a request: matched with stored pages, or attached texts and images made pages.

A bare string names a stored page, by id or reference. A string that has the form of such a name and is not
stored cannot be read: ranking its letters would help nobody. Any other string is a text. Nothing here opens
a file or an address.
"""

import base64
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ridgerank.documents.sources import source_page_names
from ridgerank.errors import DocumentError
from ridgerank.records import Page
from ridgerank.reranker.candidates import PAGE_NAME, CandidateList, OnMissing, sort_candidates
from ridgerank.reranker.candidates import Document as RankedDocument
from ridgerank.serving import schemas
from ridgerank.serving.http_errors import ApiError, page_not_found
from ridgerank.serving.settings import ServeSettings
from ridgerank.store.page_store import PageStore

_EDGES = "".join(map(chr, range(33))) + "\x7f\x85\xa0\u200b\u2028\u2029\ufeff"
"""White space and control characters, which no name of a page starts or ends with."""
_DATA_FORM = re.compile(r"data:(?:[^\s,]*,|[a-z]+/[a-z])", re.IGNORECASE)
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S*")
_BASE64 = re.compile(r"[A-Za-z0-9+/]{60,}={0,2}")
_DATA_URI = re.compile(r"\s*data:image/(png|jpeg|jpg|webp|tiff)(?:;[^\s;,]*)*;base64,", re.IGNORECASE)


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


def take_apart(document: schemas.Document | schemas.SentQuery) -> DocumentParts:
    """The parts of a document or a query."""
    match document:
        case str():
            # A data URI of any kind, in any case; `Data: see below` is a text.
            is_image = _DATA_FORM.match(document.lstrip(_EDGES)) is not None
            return DocumentParts(image=document) if is_image else DocumentParts(text=document)
        case schemas.PageDocument():
            return DocumentParts(page_names=(document.page,))
        case schemas.IdDocument():
            return DocumentParts(page_names=(document.id,))
        case schemas.SourceDocument():
            return DocumentParts(page_names=source_page_names(document.source, document.page))
        case schemas.TextDocument():
            return DocumentParts(text=document.text)
        case schemas.ImageDocument():
            return DocumentParts(text=document.text, image=document.image)
    texts = [part.text for part in document.content if isinstance(part, schemas.TextPart)]
    images = [part.image_url.url for part in document.content if isinstance(part, schemas.ImagePart)]
    return DocumentParts(text="\n".join(texts) or None, image=images[0] if images else None)


def query_text(query: schemas.SentQuery) -> str:
    """The text of a query; one with an image is refused."""
    parts = take_apart(query)
    if parts.image is not None or parts.text is None:
        raise ApiError(422, "image_query", "a query with an image; expected text alone")
    return parts.text


@dataclass(frozen=True, slots=True)
class Attachment:
    """A document that is not a stored page."""

    kind: str
    """`text`, the media type of the image, or `unreadable`."""
    data: str
    """The text, the image in base64, or why it cannot be read."""
    text: str = ""
    """The text that goes with an image."""

    def candidate(
        self, name: str, score: float | None, decode: Callable[[bytes, str, str], Page]
    ) -> RankedDocument:
        """What `Reranker.prepare` takes: a text, or an image that is decoded when its turn comes."""
        if self.kind == "text":
            return RankedDocument(text=self.data, score=score)

        def read() -> Page:
            if self.kind == "unreadable":
                raise DocumentError(self.data)
            return decode(base64.b64decode(self.data, validate=True), name, self.text)

        return RankedDocument(text=self.text, image=read, score=score)


@dataclass(frozen=True, slots=True, eq=False)
class RequestDocuments:
    """The documents of a request, in their order."""

    names: tuple[str, ...]
    """Of a stored page its id; of an attachment its key in `attachments`."""
    attachments: Mapping[str, Attachment]
    returned: tuple[schemas.ReturnedDocument, ...]
    """The documents as an answer sends them back."""

    def as_sent(self, query: str, scores: Sequence[float]) -> CandidateList:
        """The list by the scores that came along; nothing is read, decoded or encoded for it."""
        best: dict[str, float] = {}
        for name, score in zip(self.names, scores, strict=True):
            best[name] = max(score, best.get(name, score))
        ids = sort_candidates(best)
        values, called = np.array([best[each] for each in ids]), {name: name for name in self.attachments}
        return CandidateList(query, ids, values, weight=0.0, names=called, sent=list(self.names))

    def candidates(
        self, retriever_scores: Sequence[float] | None, decode: Callable[[bytes, str, str], Page]
    ) -> list[RankedDocument]:
        """What `Reranker.prepare` takes; `decode` makes a page of an image file, a name and a text."""
        scores: Sequence[float | None] = retriever_scores or [None] * len(self.names)
        return [
            self.attachments[name].candidate(name, score, decode)
            if name in self.attachments
            else RankedDocument((name,), score=score)
            for name, score in zip(self.names, scores, strict=True)
        ]

    def select(self, indices: Sequence[int]) -> "RequestDocuments":
        """The documents at some indices."""
        names = tuple(self.names[index] for index in indices)
        attachments = {name: self.attachments[name] for name in names if name in self.attachments}
        return RequestDocuments(names, attachments, tuple(self.returned[index] for index in indices))


def resolve_documents(
    documents: Sequence[schemas.Document],
    store: PageStore,
    settings: ServeSettings,
    *,
    on_missing: OnMissing = "keep",
) -> RequestDocuments:
    """Match each document with its page; what cannot be read is marked, or is an error that names it.

    The store is asked once for all names. It may lie far away: call this outside the event loop.
    """
    parts_of_all = [take_apart(document) for document in documents]
    known = store.lookup_many(name for parts in parts_of_all for name in parts.possible_names)
    page_ids = list(dict.fromkeys(known.values()))
    references = dict(zip(page_ids, store.references(page_ids), strict=True))
    names: list[str] = []
    attachments: dict[str, Attachment] = {}
    returned: list[schemas.ReturnedDocument] = []
    for index, parts in enumerate(parts_of_all):
        name = next((known[each] for each in parts.possible_names if each in known), None)
        if name is not None:
            returned.append(schemas.ReturnedDocument(page=references[name], text=parts.text))
        else:
            name = f"documents[{index}]"
            try:
                attachment = _read_attachment(parts, name, settings)
            except ApiError as error:
                if on_missing == "error":
                    raise
                attachment = Attachment("unreadable", error.message.removeprefix(f"{name} "))
            attachments[name] = attachment
            image = None if attachment.kind in ("text", "unreadable") else attachment.kind
            returned.append(
                schemas.ReturnedDocument(
                    text=parts.text or None, image=image, page=next(iter(parts.page_names), None)
                )
            )
        names.append(name)
    images = sum(attachment.kind.startswith("image") for attachment in attachments.values())
    if images > settings.limits.images:
        most = f"more than the {settings.limits.images} this server decodes for a request; index them"
        message = f"{images} documents are images that are not stored, {most}"
        raise ApiError(422, "too_many_images", message)
    return RequestDocuments(tuple(names), attachments, tuple(returned))


def _read_attachment(parts: DocumentParts, field: str, settings: ServeSettings) -> Attachment:
    names, text = parts.possible_names, parts.text or ""
    if parts.page_names or any(PAGE_NAME.fullmatch(name) for name in names):
        raise page_not_found(names[0])
    if len(text) > schemas.MAX_TEXT:
        raise _bad_document(f"{field} has {len(text):,} characters; expected at most {schemas.MAX_TEXT:,}")
    if parts.image is None and not text.strip():
        raise _bad_document(f"{field} is empty; expected a text, an image or a page")
    if parts.image is None and _ADDRESS.fullmatch(text.strip()):
        raise _remote_address(field)
    media_type, data = ("text", text) if parts.image is None else _read_image(parts.image, field)
    if not settings.encode_missing:
        stored_only = (
            "this server ranks stored pages only; index it, or start the server without --stored-only"
        )
        raise ApiError(422, "not_stored", f"{field} is not a stored page, and {stored_only}")
    return Attachment(media_type, data, "" if parts.image is None else text)


def _read_image(uri: str, field: str) -> tuple[str, str]:
    """The media type of an image and its base64."""
    prefix = _DATA_URI.match(uri)
    if prefix is not None:
        return f"image/{prefix[1].lower()}", uri[prefix.end() :].strip()
    if _DATA_FORM.match(uri.lstrip(_EDGES)):
        raise _bad_document(f"{field} is not a data URI of a PNG, JPEG, WebP or TIFF image in base64")
    if _BASE64.fullmatch(uri):
        return "image", uri
    raise _remote_address(field)


def _bad_document(message: str) -> ApiError:
    return ApiError(422, "bad_document", message)


def _remote_address(field: str) -> ApiError:
    return ApiError(
        422, "remote_address", f"{field} is an address; nothing is fetched from elsewhere: send a data URI"
    )
