"""Documents sent with a request that are no stored pages: texts and images, made pages one at a time.

Images are decoded elsewhere (`image_decoder.py`): a decoder is not to be trusted with what strangers send.
A text is passed on as it is, for a model that reads text.
"""

import base64
import binascii
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from ridgerank.documents.render import page_from_image
from ridgerank.documents.sources import text_page_id
from ridgerank.errors import DocumentError
from ridgerank.page_sizing import PixelBudget
from ridgerank.records import Page


@dataclass(frozen=True, slots=True)
class Attachment:
    """A document that is no stored page."""

    kind: str
    """`text`, or the media type of the image."""
    data: str
    """The text, or the image in base64."""
    text: str = ""
    """The text that goes with an image."""


class AttachmentPages(Mapping[str, Page | str]):
    """The attachments of a request as pages or texts, by name; one page is in memory at a time.

    An attachment is decoded when it is read, and its page id is known from then on (`page_ids`).
    """

    def __init__(
        self,
        attachments: Mapping[str, Attachment],
        check_caller: Callable[[], None],
        *,
        max_pixels: PixelBudget,
        decode: Callable[[bytes, str], Page],
    ) -> None:
        """`check_caller` runs before each page is made: it raises where the caller has left.

        `decode` makes a page of an image file and a name; with its text, it is within `max_pixels`.
        """
        self.page_ids: dict[str, str] = {}
        """Name → page id, of the attachments read so far."""
        self._attachments = attachments
        self._check_caller = check_caller
        self._max_pixels = max_pixels
        self._decode = decode

    def __getitem__(self, name: str) -> Page | str:
        attachment = self._attachments[name]
        self._check_caller()
        if attachment.kind == "text":
            self.page_ids[name] = text_page_id(attachment.data)
            return attachment.data
        try:
            page = self._make_page(attachment, name)
        except DocumentError as error:
            raise DocumentError(f"{name}: {error}") from error
        self.page_ids[name] = page.page_id
        return page

    def __contains__(self, name: object) -> bool:
        return name in self._attachments

    def __iter__(self) -> Iterator[str]:
        return iter(self._attachments)

    def __len__(self) -> int:
        return len(self._attachments)

    def _make_page(self, attachment: Attachment, name: str) -> Page:
        try:
            content = base64.b64decode(attachment.data, validate=True)
        except binascii.Error as error:
            raise DocumentError(f"not base64 ({error}); encode the image's bytes again") from error
        page = self._decode(content, name)
        if not attachment.text:
            return page
        return page_from_image(page.image, name, max_pixels=self._max_pixels, text=attachment.text)
