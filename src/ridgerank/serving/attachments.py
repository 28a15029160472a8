"""Documents sent with a request that are no stored pages: texts and images, made pages one at a time.

Images are decoded elsewhere (`image_decoder.py`): a decoder is not to be trusted with what strangers send.
A text is drawn on a page for a model that looks at pages, and passed on as it is for one that reads text.
"""

import base64
import binascii
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from PIL import Image, ImageChops

from ridgerank.documents.drawn_text import MARGIN, draw_text
from ridgerank.documents.render import page_from_image, page_from_text
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


class AttachmentPages(Mapping[str, Page]):
    """The attachments of a request as pages, by name; one page is in memory at a time.

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

        Texts are drawn within `max_pixels`; `decode` makes a page of an image file and a name.
        """
        self.page_ids: dict[str, str] = {}
        """Name → page id, of the attachments read so far."""
        self._attachments = attachments
        self._check_caller = check_caller
        self._max_pixels = max_pixels
        self._decode = decode

    def __getitem__(self, name: str) -> Page:
        attachment = self._attachments[name]
        self._check_caller()
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
        data = attachment.data
        if attachment.kind == "text":
            return page_from_text(data, name, max_pixels=self._max_pixels)
        try:
            content = base64.b64decode(data, validate=True)
        except binascii.Error as error:
            raise DocumentError(f"not base64 ({error}); encode the image's bytes again") from error
        page = self._decode(content, name)
        if not attachment.text:
            return page
        both = append_text(page.image, attachment.text)
        return page_from_image(both, name, max_pixels=self._max_pixels, text=attachment.text)


def append_text(image: Image.Image, text: str) -> Image.Image:
    """An image with a text drawn beneath it, as wide as the image: one page that shows both."""
    paper = draw_text(text)
    lines = paper.crop((0, 0, paper.width, _text_height(paper)))
    height = max(1, round(lines.height * image.width / lines.width))
    page = Image.new("RGB", (image.width, image.height + height), "white")
    page.paste(image.convert("RGB"), (0, 0))
    page.paste(lines.resize((image.width, height)), (0, image.height))
    return page


def _text_height(paper: Image.Image) -> int:
    """Where the drawn lines end, with a margin below."""
    box = ImageChops.invert(paper.convert("L")).getbbox()
    return MARGIN if box is None else min(paper.height, box[3] + MARGIN)
