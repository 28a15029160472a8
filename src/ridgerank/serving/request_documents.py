"""The documents of a request, matched with stored pages; what is not stored becomes an attachment.

A bare string names a stored page, by id or reference. A string that has the form of such a name and is not
stored is refused: ranking its letters would be no service. Any other string is a text. Nothing here opens a
file or an address.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ridgerank.ranking.candidates import CandidateLike
from ridgerank.serving.attachments import Attachment
from ridgerank.serving.http_errors import ApiError, page_not_found
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
from ridgerank.serving.serve_settings import ServeSettings
from ridgerank.store.page_store import PageStore

_PAGE_NAME = re.compile(r"[0-9a-f]{64}|[^\n]{1,400}#[0-9]{1,9}")
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S*")
_DATA_URI = re.compile(r"data:image/(png|jpeg|jpg|webp|tiff);base64,")


@dataclass(frozen=True, slots=True, eq=False)
class RequestDocuments:
    """The documents of a request, in their order."""

    names: tuple[str, ...]
    """Of a stored page its id; of an attachment its key in `attachments`."""
    attachments: Mapping[str, Attachment]
    returned: tuple[ReturnedDocument, ...]
    """The documents as an answer sends them back."""

    def candidates(self, retriever_scores: Sequence[float] | None) -> list[CandidateLike]:
        """The candidates that `Reranker.prepare` takes."""
        if retriever_scores is None:
            return list(self.names)
        return list(zip(self.names, retriever_scores, strict=True))

    def select(self, indices: Sequence[int]) -> "RequestDocuments":
        """The documents at some indices."""
        names = tuple(self.names[index] for index in indices)
        attachments = {name: self.attachments[name] for name in names if name in self.attachments}
        return RequestDocuments(names, attachments, tuple(self.returned[index] for index in indices))


def resolve_documents(
    documents: Sequence[Document], store: PageStore, settings: ServeSettings
) -> RequestDocuments:
    """Match each document with its page; the error names the first document that cannot be ranked.

    The store is asked once for all names. It may lie far away: call this outside the event loop.
    """
    page_id_by_name = store.lookup_many(filter(None, map(_possible_name, documents)))
    page_ids = list(dict.fromkeys(page_id_by_name.values()))
    references = dict(zip(page_ids, store.references(page_ids), strict=True))
    names: list[str] = []
    attachments: dict[str, Attachment] = {}
    returned: list[ReturnedDocument] = []
    for index, document in enumerate(documents):
        page_id = _stored_page_id(document, page_id_by_name)
        if page_id is not None:
            names.append(page_id)
            returned.append(ReturnedDocument(page=references[page_id], text=_text(document)))
            continue
        field = f"documents[{index}]"
        attachment = _read_attachment(document, field)
        if not settings.encode_missing:
            raise ApiError(
                422,
                "not_stored",
                f"{field} is no stored page, and this server ranks stored pages only; index it, or start the "
                "server with --encode-missing",
            )
        name = f"{field} of this request"
        names.append(name)
        attachments[name] = attachment
        returned.append(_returned_attachment(attachment))
    _require_few_attachments(len(attachments), settings.limits.images)
    return RequestDocuments(tuple(names), attachments, tuple(returned))


def _possible_name(document: Document) -> str | None:
    """The string of a document that may name a stored page, None where there is none."""
    if isinstance(document, PageDocument):
        return document.page
    if isinstance(document, IdDocument):
        return document.id
    return _text(document)


def _stored_page_id(document: Document, page_id_by_name: Mapping[str, str]) -> str | None:
    """The page id of a document that names a stored page; a string that can only be a name must be known."""
    name = _possible_name(document)
    if name is None:
        return None
    page_id = page_id_by_name.get(name)
    must_be_stored = isinstance(document, PageDocument | IdDocument) or _PAGE_NAME.fullmatch(name)
    if page_id is None and must_be_stored:
        raise page_not_found(name)
    return page_id


def _text(document: Document) -> str | None:
    """The text of a document, None where it is an image or names a page in a field of its own."""
    if isinstance(document, str):
        return None if document.startswith("data:") else document
    if isinstance(document, TextDocument):
        return document.text
    if isinstance(document, PageDocument | IdDocument | ImageDocument):
        return None
    [part] = document.content
    return part.text if isinstance(part, TextPart) else None


def _read_attachment(document: Document, field: str) -> Attachment:
    text = _text(document)
    if text is None:
        return _read_image(_image_uri(document), field)
    if _ADDRESS.fullmatch(text.strip()):
        raise _remote_address(field)
    if len(text) > MAX_TEXT:
        raise ApiError(
            422, "bad_document", f"{field} has {len(text):,} characters; wanted {MAX_TEXT:,} at most"
        )
    return Attachment("text", text)


def _image_uri(document: Document) -> str:
    if isinstance(document, str):
        return document
    if isinstance(document, ImageDocument):
        return document.image
    parts = [] if isinstance(document, PageDocument | IdDocument | TextDocument) else document.content
    [uri] = [part.image_url.url for part in parts if not isinstance(part, TextPart)]
    return uri


def _read_image(uri: str, field: str) -> Attachment:
    prefix = _DATA_URI.match(uri)
    if prefix is not None:
        return Attachment(f"image/{prefix[1]}", uri[prefix.end() :])
    if uri.startswith("data:"):
        raise ApiError(
            422, "bad_document", f"{field} is no data URI of a PNG, JPEG, WebP or TIFF image in base64"
        )
    raise _remote_address(field)


def _returned_attachment(attachment: Attachment) -> ReturnedDocument:
    if attachment.kind == "text":
        return ReturnedDocument(text=attachment.data)
    return ReturnedDocument(image=attachment.kind)


def _require_few_attachments(count: int, limit: int) -> None:
    if count > limit:
        raise ApiError(
            422,
            "too_many_images",
            f"{count} documents are not stored, more than the {limit} this server encodes for a request; "
            "index them",
        )


def _remote_address(field: str) -> ApiError:
    return ApiError(
        422, "remote_address", f"{field} is an address; nothing is fetched from elsewhere: send a data URI"
    )
