"""From paths to pages: the functions other packages call.

There are two steps, so that stored pages are not rendered again: `list_pages` gives the id of every page
without rendering it, `render_pages` renders the pages it is given. `read_pages` does both. Pages stream in
the order of the files; what cannot be read is a `Failure` at its position, and the stream goes on.
"""

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ridgerank.documents.failures import Failure, SkippedFile, describe_os_error
from ridgerank.documents.identity import FileStamp, digest_file, file_page_id, image_page_id
from ridgerank.documents.limits import MAX_FILE_BYTES
from ridgerank.documents.sources import SourceFile, find_sources
from ridgerank.documents.worker_pool import map_in_order
from ridgerank.errors import DocumentError
from ridgerank.page_sizing import PixelBudget, count_budget
from ridgerank.records import Page

if TYPE_CHECKING:
    from PIL.Image import Image

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


def list_pages(paths: Iterable[str | Path], *, processes: int = 1) -> Generator[ListedItem, None, None]:
    """List every page under `paths`. Files are hashed and their pages counted; nothing is rendered."""
    with closing(
        map_in_order(find_sources(paths), _examiner, on_lost=_lost_failure, processes=processes)
    ) as examined:
        for item in examined:
            if not isinstance(item, _FileContents):
                yield item
                continue
            if item.caveat:
                yield Failure(item.source.name, item.caveat, item.source.path)
            for number in range(1, item.pages + 1):
                yield PageRef(file_page_id(item.digest, number), item.source, number, item.stamp)


def render_pages(
    listed: Iterable[ListedItem], *, max_pixels: PixelBudget, processes: int = 1
) -> Generator[ReadItem, None, None]:
    """Read listed pages, each image within `max_pixels` pixels; what is no page passes through.

    With a `PageSizing` for `max_pixels`, images are resized once, as that processor would; PDF pages are
    drawn within its budget.

    From two processes on, a file that crashes its reader costs only the page it crashed on.
    """
    _require_budget(max_pixels)
    return map_in_order(listed, partial(_renderer, max_pixels), on_lost=_lost_failure, processes=processes)


def read_texts(refs: Iterable[PageRef]) -> Iterator[tuple[str, str]]:
    """Page id and text layer of listed pages, without rendering; empty for images and unreadable files."""
    from ridgerank.documents.pdf import PdfReader

    with PdfReader() as pdfs:
        for ref in refs:
            text = ""
            if ref.source.is_pdf:
                with suppress(DocumentError, OSError):
                    text = pdfs.text(ref.source.path, ref.number)
            yield ref.page_id, text


def read_pages(
    paths: Iterable[str | Path],
    *,
    max_pixels: PixelBudget,
    processes: int = 1,
    skip: Callable[[str], bool] = lambda page_id: False,
) -> Generator[ReadItem, None, None]:
    """Read every page under `paths`, except pages for whose id `skip` is true: they are not rendered."""
    # Listing is quick compared with rendering. It needs one process; with two it survives a crash.
    with closing(list_pages(paths, processes=min(processes, 2))) as listed:
        items = (item for item in listed if not (isinstance(item, PageRef) and skip(item.page_id)))
        yield from render_pages(items, max_pixels=max_pixels, processes=processes)


def page_from_image(image: "Image", reference: str, *, max_pixels: PixelBudget, text: str = "") -> Page:
    """Make a page of an image in memory; its id depends on the pixels and the text.

    The id is computed before the image is scaled, so that it does not depend on `max_pixels`.
    """
    from ridgerank.documents.images import normalize_image, shrink_image

    _require_budget(max_pixels)
    shown = normalize_image(image)
    return Page(image_page_id(shown, text), reference, shrink_image(shown, max_pixels=max_pixels), text)


def page_from_text(text: str, reference: str, *, max_pixels: PixelBudget) -> Page:
    """Make a page of a text alone: drawn for models that look at pages, as it is for those that read text."""
    from ridgerank.documents.drawn_text import draw_text

    return page_from_image(draw_text(text), reference, max_pixels=max_pixels, text=text)


@dataclass(frozen=True, slots=True)
class _FileContents:
    """What listing found out about a file."""

    source: SourceFile
    digest: bytes
    stamp: FileStamp
    pages: int
    caveat: str
    """What is wrong with a file that can still be read; usually empty."""


@contextmanager
def _examiner() -> Iterator[
    Callable[[SourceFile | SkippedFile | Failure], _FileContents | SkippedFile | Failure]
]:
    from ridgerank.documents.images import count_frames
    from ridgerank.documents.pdf import count_pages, is_truncated

    def examine(source: SourceFile) -> _FileContents:
        stamp = FileStamp.of(source.path)
        if stamp.size == 0:
            raise DocumentError("an empty file; get a complete copy")
        if stamp.size > MAX_FILE_BYTES:
            raise DocumentError(f"{stamp.size:,} bytes, more than {MAX_FILE_BYTES:,}; split it")
        pages = count_pages(source.path) if source.is_pdf else count_frames(source.path)
        caveat = ""
        if source.is_pdf and is_truncated(source.path):
            caveat = f"cut short, {pages} pages were recovered, perhaps not whole; get a complete copy"
        contents = _FileContents(source, digest_file(source.path), stamp, pages, caveat)
        if FileStamp.of(source.path) != stamp:
            raise DocumentError("was written to while it was read; list it again")
        return contents

    yield lambda item: _attempt(examine, item) if isinstance(item, SourceFile) else item


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
        return _failure(item, describe_os_error(error))
    except MemoryError:
        return _failure(item, "larger than the memory; make it smaller, or use fewer processes")


def _require_unchanged(ref: PageRef) -> None:
    try:
        stamp = FileStamp.of(ref.source.path)
    except FileNotFoundError:
        raise DocumentError("gone since it was listed; put it back, or list again") from None
    if stamp != ref.stamp:
        raise DocumentError("changed since it was listed; list it again")


def _require_budget(max_pixels: PixelBudget) -> None:
    if (pixels := count_budget(max_pixels)) < 1:
        raise ValueError(f"max_pixels is {pixels}, wanted at least 1")


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
