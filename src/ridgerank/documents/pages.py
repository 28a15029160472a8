"""The door: paths in, pages out, one after another.

Two steps, so that what is stored already is never rendered: `list_pages` names every page without reading
it, `render_pages` reads those one wants. `read_pages` does both. Everything streams, in the order of the
files; what cannot be read is a `Failure` in its place, and the rest goes on.
"""

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ridgerank.documents.failures import Failure, PassedOver, reason_for
from ridgerank.documents.identity import Stamp, digest_file, file_page_id, image_page_id
from ridgerank.documents.limits import MAX_FILE_BYTES
from ridgerank.documents.sources import Source, find_sources
from ridgerank.documents.worker_pool import in_order
from ridgerank.errors import DocumentError
from ridgerank.records import Page

if TYPE_CHECKING:
    from PIL.Image import Image

Item = TypeVar("Item", "Source", "PageRef")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class PageRef:
    """A page that can be read: named, not yet rendered."""

    page_id: str
    """What `Page.page_id` will be. Two files of the same bytes hold pages of the same ids."""
    source: Source
    number: int
    """Counted from 1."""
    stamp: Stamp
    """The file as it was when it was listed; it is not read as anything else."""

    @property
    def reference(self) -> str:
        """What `Page.reference` will be: `report.pdf#3`; of an image, `scan.png#1`."""
        return f"{self.source.name}#{self.number}"


Listed = PageRef | PassedOver | Failure
Read = Page | PassedOver | Failure


def list_pages(paths: Iterable[str | Path], *, processes: int = 1) -> Generator[Listed, None, None]:
    """Every page under `paths` by its id and reference. Files are hashed and their pages counted, no more."""
    with closing(in_order(find_sources(paths), _examiner, lost=_lost, processes=processes)) as examined:
        for found in examined:
            if not isinstance(found, _Contents):
                yield found
                continue
            if found.caveat:
                yield Failure(found.source.name, found.caveat)
            for number in range(1, found.pages + 1):
                yield PageRef(file_page_id(found.digest, number), found.source, number, found.stamp)


def render_pages(
    listed: Iterable[Listed], *, max_pixels: int, processes: int = 1
) -> Generator[Read, None, None]:
    """Read listed pages, each image within `max_pixels` pixels; what is no page passes through.

    From two processes on, a file that crashes its reader costs only the page it crashed on.
    """
    _require_budget(max_pixels)
    return in_order(listed, partial(_renderer, max_pixels), lost=_lost, processes=processes)


def read_texts(refs: Iterable[PageRef]) -> Iterator[tuple[str, str]]:
    """Page id and text of listed pages, nothing rendered; images have none, nor has what cannot be read."""
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
    max_pixels: int,
    processes: int = 1,
    skip: Callable[[str], bool] = lambda page_id: False,
) -> Generator[Read, None, None]:
    """Every page under `paths` but those whose id `skip` says yes to, which are not rendered."""
    # Listing is quick beside rendering: one process more than it needs, so that it too survives a crash.
    with closing(list_pages(paths, processes=min(processes, 2))) as listed:
        wanted = (item for item in listed if not (isinstance(item, PageRef) and skip(item.page_id)))
        yield from render_pages(wanted, max_pixels=max_pixels, processes=processes)


def page_from_image(image: "Image", reference: str, *, max_pixels: int, text: str = "") -> Page:
    """Make a page of an image, as data sets hold them; its id depends on what it shows and says.

    The id is taken before the image is scaled, so that it does not depend on `max_pixels`.
    """
    from ridgerank.documents.images import shrink, upright

    _require_budget(max_pixels)
    shown = upright(image)
    return Page(image_page_id(shown, text), reference, shrink(shown, max_pixels=max_pixels), text)


@dataclass(frozen=True, slots=True)
class _Contents:
    """What a look at a file tells."""

    source: Source
    digest: bytes
    stamp: Stamp
    pages: int
    caveat: str
    """What is wrong with a file that can be read all the same; usually nothing."""


@contextmanager
def _examiner() -> Iterator[Callable[[Source | PassedOver | Failure], _Contents | PassedOver | Failure]]:
    from ridgerank.documents.images import count_frames
    from ridgerank.documents.pdf import count_pages, is_cut_short

    def examine(source: Source) -> _Contents:
        stamp = Stamp.of(source.path)
        if stamp.size == 0:
            raise DocumentError("an empty file; get a complete copy")
        if stamp.size > MAX_FILE_BYTES:
            raise DocumentError(f"{stamp.size:,} bytes, more than {MAX_FILE_BYTES:,}; split it")
        pages = count_pages(source.path) if source.is_pdf else count_frames(source.path)
        caveat = ""
        if source.is_pdf and is_cut_short(source.path):
            caveat = f"cut short, {pages} pages were recovered, perhaps not whole; get a complete copy"
        contents = _Contents(source, digest_file(source.path), stamp, pages, caveat)
        if Stamp.of(source.path) != stamp:
            raise DocumentError("was written to while it was read; list it again")
        return contents

    yield lambda item: _attempt(examine, item) if isinstance(item, Source) else item


@contextmanager
def _renderer(max_pixels: int) -> Iterator[Callable[[Listed], Read]]:
    from ridgerank.documents.images import read_image
    from ridgerank.documents.pdf import PdfReader

    def render(ref: PageRef) -> Page:
        path, text = ref.source.path, ""
        _require_unchanged(ref)
        if ref.source.is_pdf:
            image, text = pdfs.read(path, ref.number, max_pixels=max_pixels)
        else:
            image = read_image(path, ref.number, max_pixels=max_pixels)
        _require_unchanged(ref)
        return Page(ref.page_id, ref.reference, image, text)

    with PdfReader() as pdfs:
        yield lambda item: _attempt(render, item) if isinstance(item, PageRef) else item


def _attempt(work: Callable[[Item], Result], item: Item) -> Result | Failure:
    """Do the work, or say why not: what cannot be read is a fact about the file, no error of ours."""
    try:
        return work(item)
    except DocumentError as error:
        return Failure(_reference(item), str(error))
    except OSError as error:
        return Failure(_reference(item), reason_for(error))
    except MemoryError:
        return Failure(_reference(item), "larger than the memory; make it smaller, or use fewer processes")


def _require_unchanged(ref: PageRef) -> None:
    try:
        stamp = Stamp.of(ref.source.path)
    except FileNotFoundError:
        raise DocumentError("gone since it was listed; put it back, or list again") from None
    if stamp != ref.stamp:
        raise DocumentError("changed since it was listed; list it again")


def _require_budget(max_pixels: int) -> None:
    if max_pixels < 1:
        raise ValueError(f"max_pixels is {max_pixels}, wanted at least 1")


def _lost(item: Source | Listed, fate: str) -> Failure:
    return Failure(_reference(item), f"{fate}; damaged or hostile: repair it, or leave it out")


def _reference(item: Source | Listed) -> str:
    return item.name if isinstance(item, Source) else item.reference
