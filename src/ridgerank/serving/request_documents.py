"""The documents of a request, matched with stored pages; what is not stored becomes an attachment.

A bare string names a stored page, by id or reference. A string that has the form of such a name and is not
stored is refused: ranking its letters would be no service. Any other string is a text. Nothing here opens a
file or an address.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ridgerank.reranker.candidates import CandidateLike
from ridgerank.serving.attachments import Attachment
from ridgerank.serving.document_parts import DocumentParts, is_data_uri, take_apart
from ridgerank.serving.http_errors import ApiError, page_not_found
from ridgerank.serving.schemas.document_schemas import Document, ReturnedDocument
from ridgerank.serving.schemas.shared_schemas import MAX_TEXT
from ridgerank.serving.serve_settings import ServeSettings
from ridgerank.store.page_store import PageStore

_PAGE_NAME = re.compile(r"[0-9a-f]{64}|[^\n]{1,400}#[0-9]{1,9}")
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S*")
_BASE64 = re.compile(r"[A-Za-z0-9+/]{60,}={0,2}")
_DATA_URI = re.compile(r"\s*data:image/(png|jpeg|jpg|webp|tiff)(?:;[^\s;,]*)*;base64,", re.IGNORECASE)


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
    parts_of_all = [take_apart(document) for document in documents]
    page_id_by_name = store.lookup_many(name for parts in parts_of_all for name in parts.possible_names)
    page_ids = list(dict.fromkeys(page_id_by_name.values()))
    references = dict(zip(page_ids, store.references(page_ids), strict=True))
    names: list[str] = []
    attachments: dict[str, Attachment] = {}
    returned: list[ReturnedDocument] = []
    for index, parts in enumerate(parts_of_all):
        page_id = _stored_page_id(parts, page_id_by_name)
        if page_id is not None:
            names.append(page_id)
            returned.append(ReturnedDocument(page=references[page_id], text=parts.text))
            continue
        field = f"documents[{index}]"
        attachment = _read_attachment(parts, field)
        if not settings.encode_missing:
            raise ApiError(
                422,
                "not_stored",
                f"{field} is no stored page, and this server ranks stored pages only; index it, or have such "
                f"documents encoded on the fly: `ridgerank serve --store STORE --encode-missing`",
            )
        name = f"{field} of this request"
        names.append(name)
        attachments[name] = attachment
        returned.append(_returned_attachment(attachment))
    _require_few_attachments(len(attachments), settings.limits.images)
    return RequestDocuments(tuple(names), attachments, tuple(returned))


def _stored_page_id(parts: DocumentParts, page_id_by_name: Mapping[str, str]) -> str | None:
    """The page id of a document that names a stored page; a string that can only be a name must be known."""
    names = parts.possible_names
    page_id = next((page_id_by_name[name] for name in names if name in page_id_by_name), None)
    must_be_stored = bool(parts.page_names) or any(_PAGE_NAME.fullmatch(name) for name in names)
    if page_id is None and must_be_stored:
        raise page_not_found(names[0])
    return page_id


def _read_attachment(parts: DocumentParts, field: str) -> Attachment:
    text = parts.text or ""
    if len(text) > MAX_TEXT:
        raise ApiError(
            422, "bad_document", f"{field} has {len(text):,} characters; wanted {MAX_TEXT:,} at most"
        )
    if parts.image is not None:
        media_type, data = _read_image(parts.image, field)
        return Attachment(media_type, data, text)
    if not text.strip():
        raise ApiError(422, "bad_document", f"{field} is empty; wanted a text, an image or a page")
    if _ADDRESS.fullmatch(text.strip()):
        raise _remote_address(field)
    return Attachment("text", text)


def _read_image(uri: str, field: str) -> tuple[str, str]:
    """The media type of an image and its base64."""
    prefix = _DATA_URI.match(uri)
    if prefix is not None:
        return f"image/{prefix[1].lower()}", uri[prefix.end() :].strip()
    if is_data_uri(uri):
        raise ApiError(
            422, "bad_document", f"{field} is no data URI of a PNG, JPEG, WebP or TIFF image in base64"
        )
    if _BASE64.fullmatch(uri):
        return "image", uri
    raise _remote_address(field)


def _returned_attachment(attachment: Attachment) -> ReturnedDocument:
    if attachment.kind == "text":
        return ReturnedDocument(text=attachment.data)
    return ReturnedDocument(image=attachment.kind, text=attachment.text or None)


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
