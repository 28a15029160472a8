"""Listing files and rendering their pages, in worker processes: a file that kills one costs no other."""

import io
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ridgerank.documents import sources
from ridgerank.documents.sources import Failure, FileStamp, SkippedFile, SourceFile
from ridgerank.errors import DocumentError
from ridgerank.page_sizing import PixelBudget, count_budget
from ridgerank.processes import map_in_order
from ridgerank.records import Page

if TYPE_CHECKING:
    from PIL.Image import Image

PAGE_SECONDS = 30.0
"""How long one page may take to read; pages that are printed, scanned or drawn by hand take less than one."""

Item = TypeVar("Item", "SourceFile", "PageRef")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class PageRef:
    """A page that is listed and not yet rendered."""

    page_id: str
    """What `Page.page_id` will be. Two files of the same bytes hold pages of the same ids."""
    source: SourceFile
    number: int
    """Counted from 1."""
    stamp: FileStamp
    """The file as it was when it was listed; a file that has changed since is not read."""

    @property
    def reference(self) -> str:
        """What `Page.reference` will be: `report.pdf#3`; of an image, `scan.png#1`."""
        return f"{self.source.name}#{self.number}"


ListedItem = PageRef | SkippedFile | Failure
ReadItem = Page | SkippedFile | Failure


def list_pages(paths: Iterable[str | Path], *, processes: int = 0) -> Generator[ListedItem, None, None]:
    """List every page under `paths`: files are hashed and their pages counted. 0 processes: in this one."""
    with closing(
        map_in_order(
            sources.find_sources(paths),
            _examiner,
            on_lost=lambda source, fate: [_lost_failure(source, fate)],
            processes=processes,
        )
    ) as examined:
        for items in examined:
            yield from items


def render_pages(
    listed: Iterable[ListedItem], *, max_pixels: PixelBudget, processes: int = 0
) -> Generator[ReadItem, None, None]:
    """Read listed pages within `max_pixels`, in other processes for `PAGE_SECONDS` at most each."""
    return map_in_order(
        listed,
        partial(_renderer, max_pixels),
        on_lost=_lost_failure,
        processes=processes,
        timeout_s=PAGE_SECONDS,
    )


def page_from_image(image: "Image", reference: str, *, max_pixels: PixelBudget, text: str = "") -> Page:
    """Make a page of an image in memory; its id depends on the unscaled pixels and the text."""
    from ridgerank.documents.images import normalize_image, shrink_image

    shown = normalize_image(image)
    page_id = sources.image_page_id(shown, text)
    return Page(page_id, reference, shrink_image(shown, max_pixels=max_pixels), text)


def page_from_text(text: str, reference: str) -> Page:
    """Make a page of a text alone, for models that read text: its image is a single white pixel."""
    from PIL import Image

    return Page(sources.text_page_id(text), reference, Image.new("RGB", (1, 1), "white"), text)


@contextmanager
def _examiner() -> Iterator[Callable[[SourceFile | SkippedFile | Failure], Sequence[ListedItem]]]:
    yield _examine


def _examine(item: SourceFile | SkippedFile | Failure) -> Sequence[ListedItem]:
    examined = _attempt(_list_file, item) if isinstance(item, SourceFile) else item
    return examined if isinstance(examined, list) else [examined]


def _list_file(source: SourceFile) -> list[ListedItem]:
    """The pages of a file, preceded by a `Failure` if it is cut short."""
    from ridgerank.documents.images import count_frames
    from ridgerank.documents.pdf import count_pages, is_truncated

    stamp = sources.stamp_file(source.path)
    size = stamp[0]
    if size == 0:
        raise DocumentError("an empty file; get a complete copy")
    if size > sources.MAX_FILE_BYTES:
        raise DocumentError(f"{size:,} bytes, more than {sources.MAX_FILE_BYTES:,}; split it")
    pages = count_pages(source.path) if source.is_pdf else count_frames(source.path)
    items: list[ListedItem] = []
    if source.is_pdf and is_truncated(source.path):
        reason = f"cut short, {pages} pages were recovered, perhaps not whole; get a complete copy"
        items.append(Failure(source.name, reason, source.path))
    digest = sources.digest_file(source.path)
    if sources.stamp_file(source.path) != stamp:
        raise DocumentError("was written to while it was read; list it again")
    ids = (sources.file_page_id(digest, number) for number in range(1, pages + 1))
    return items + [PageRef(page_id, source, number, stamp) for number, page_id in enumerate(ids, start=1)]


@contextmanager
def _renderer(max_pixels: PixelBudget) -> Iterator[Callable[[ListedItem], ReadItem]]:
    from ridgerank.documents.images import read_image
    from ridgerank.documents.pdf import PdfReader

    def render(ref: PageRef) -> Page:
        path, text = ref.source.path, ""
        _require_unchanged(ref)
        if ref.source.is_pdf:
            image, text = pdfs.read(path, ref.number, max_pixels=count_budget(max_pixels))
        else:
            image = read_image(path, ref.number, max_pixels=max_pixels)
        _require_unchanged(ref)
        return Page(ref.page_id, ref.reference, image, text)

    with PdfReader() as pdfs:
        yield lambda item: _attempt(render, item) if isinstance(item, PageRef) else item


def _attempt(work: Callable[[Item], Result], item: Item) -> Result | Failure:
    """Do the work; a file that cannot be read becomes a `Failure` that says why."""
    try:
        return work(item)
    except DocumentError as error:
        return _failure(item, str(error))
    except OSError as error:
        return _failure(item, sources.describe_os_error(error))
    except MemoryError:
        return _failure(item, "larger than the memory; make it smaller, or use fewer processes")


def _require_unchanged(ref: PageRef) -> None:
    try:
        stamp = sources.stamp_file(ref.source.path)
    except FileNotFoundError:
        raise DocumentError("gone since it was listed; put it back, or list again") from None
    if stamp != ref.stamp:
        raise DocumentError("changed since it was listed; list it again")


def _lost_failure(item: SourceFile | ListedItem, fate: str) -> Failure:
    return _failure(item, f"{fate}; damaged or hostile: repair it, or leave it out")


def _failure(item: SourceFile | ListedItem, reason: str) -> Failure:
    match item:
        case SourceFile():
            return Failure(item.name, reason, item.path)
        case PageRef():
            return Failure(item.reference, reason, item.source.path)
        case _:
            return Failure(item.reference, reason)


def decode_page(content: bytes, name: str, text: str, *, max_pixels: PixelBudget, image_pixels: int) -> Page:
    """The page of an image file and its text; an image of more than `image_pixels` is refused."""
    from ridgerank.documents.images import decode_image

    image = decode_image(content, max_pixels=image_pixels)
    return page_from_image(image, name, max_pixels=max_pixels, text=text)


def find_page(paths: Sequence[Path], page_id: str) -> PageRef | None:
    """The page in whichever of the documents holds it; None if none does any more."""
    refs = (item for item in list_pages(paths) if isinstance(item, PageRef))
    return next((ref for ref in refs if ref.page_id == page_id), None)


def draw_page(paths: Sequence[Path], page_id: str, *, max_pixels: int) -> bytes | None:
    """A page as a PNG file, from whichever of the documents holds it; None if none does any more."""
    ref = find_page(paths, page_id)
    for page in render_pages([] if ref is None else [ref], max_pixels=max_pixels):
        if isinstance(page, Page):
            encoded = io.BytesIO()
            page.image.save(encoded, "PNG", compress_level=1)
            return encoded.getvalue()
    return None
