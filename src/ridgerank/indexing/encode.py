"""Listed pages are rendered, encoded and compressed: rows of the store, in groups large enough to commit."""

import io
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Self

import numpy as np
from numpy.typing import NDArray
from PIL.Image import Image

from ridgerank.backbones.base import Backbone
from ridgerank.documents.ocr import Recognizer, recognize_pages
from ridgerank.documents.render import PageRef, render_pages
from ridgerank.documents.sources import Failure
from ridgerank.indexing.names import Listing
from ridgerank.lineage import Lineage, StorageSetting
from ridgerank.page_sizing import PixelBudget
from ridgerank.records import Page
from ridgerank.store.codec import compress, encode_shared
from ridgerank.store.layout import SharedPositions, block_shape
from ridgerank.store.page_store import PageRow, StoredPage
from ridgerank.store.vector_columns import PageEmbedder, VectorOrigin

_COMMIT_SECONDS = 15.0
_COMMIT_BYTES = 128 << 20
_COMMIT_PAGES = 64
"""Encoded pages are committed when one of these is reached: a kill loses at most this much work."""
_THUMBNAIL_PIXELS = 320


@dataclass(frozen=True, slots=True)
class EncodedPages:
    """Rows of new pages, and vectors of pages that were stored before."""

    rows: list[PageRow] = field(default_factory=list)
    vectors: dict[str, NDArray[np.float16]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.rows) + len(self.vectors)

    def __add__(self, other: "EncodedPages") -> "EncodedPages":
        return EncodedPages([*self.rows, *other.rows], {**self.vectors, **other.vectors})

    @property
    def prefix_bytes(self) -> int:
        """Bytes of the prefixes."""
        return sum(block_shape(row.prefix).nbytes for row in self.rows)

    @property
    def nbytes(self) -> int:
        """Bytes of prefixes and vectors."""
        new_vectors = [row.page.vectors for row in self.rows if row.page.vectors is not None]
        return self.prefix_bytes + sum(vectors.nbytes for vectors in (*new_vectors, *self.vectors.values()))


@dataclass(frozen=True, slots=True)
class PageEncoder:
    """The models that encode pages, and their settings."""

    backbone: Backbone
    embedder: PageEmbedder | None
    storage: StorageSetting
    shared: SharedPositions | None
    """The positions before the page, if the store holds them once."""

    @classmethod
    def create(cls, backbone: Backbone, embedder: PageEmbedder | None, storage: StorageSetting) -> Self:
        """An encoder for this setting; a layer that the model lacks is refused."""
        backbone.geometry.require_layers(storage.exit_layer)
        return cls(backbone, embedder, storage, encode_shared(backbone, storage))

    def encode(self, pages: Sequence[Page], listing: Listing, stored: frozenset[str]) -> EncodedPages:
        """Run one batch of rendered pages through both models; a stored page needs its vectors only."""
        vectors: dict[str, NDArray[np.float16]] = {}
        if self.embedder is not None:
            embedded = self.embedder.embed_pages([page.image for page in pages])
            vectors = dict(zip((page.page_id for page in pages), embedded, strict=True))
        new = [page for page in pages if page.page_id not in stored]
        contents = [self.backbone.content(page) for page in new]
        prefixes = self.backbone.encode(contents, exit_layer=self.storage.exit_layer)
        rows = [
            PageRow(
                page=StoredPage(
                    page_id=page.page_id,
                    references=tuple(listing.references[page.page_id]),
                    source=listing.refs[page.page_id].source.name,
                    text=page.text,
                    thumbnail=_thumbnail(page.image),
                    vectors=vectors.pop(page.page_id, None),
                ),
                prefix=compress(prefix, self.storage.keep, self.storage.numbers, self.shared),
            )
            for page, prefix in zip(new, prefixes, strict=True)
        ]
        return EncodedPages(rows, vectors)


def group_for_commits(batches: Iterable[EncodedPages]) -> Iterator[EncodedPages]:
    """Join whole batches until a limit of one commit is reached."""
    pending, since = EncodedPages(), time.monotonic()
    for batch in batches:
        pending += batch
        late = time.monotonic() - since > _COMMIT_SECONDS
        if late or pending.nbytes > _COMMIT_BYTES or len(pending) >= _COMMIT_PAGES:
            yield pending
            pending, since = EncodedPages(), time.monotonic()
    if len(pending):
        yield pending


def _thumbnail(image: Image) -> bytes:
    small = image.copy()
    small.thumbnail((_THUMBNAIL_PIXELS, _THUMBNAIL_PIXELS))
    encoded = io.BytesIO()
    small.save(encoded, "WEBP", quality=70, method=4)
    return encoded.getvalue()


@dataclass(frozen=True, slots=True)
class EncodingDescription:
    """What a store has to know of the models that encode its pages."""

    lineage: Lineage
    batch_pages: int
    """Pages per forward pass. The same on every machine: the last bits of prefixes depend on it."""
    origin: VectorOrigin | None
    reads_text: bool
    shared: SharedPositions | None


def describe_encoding(page_encoder: PageEncoder) -> EncodingDescription:
    """Describe the models and the setting of an encoder."""
    backbone, embedder = page_encoder.backbone, page_encoder.embedder
    return EncodingDescription(
        backbone.lineage(page_encoder.storage),
        8 if backbone.device.type == "cuda" else 4,
        None if embedder is None else embedder.origin,
        backbone.reads_text,
        page_encoder.shared,
    )


def render_batches(
    numbered: Iterable[tuple[int, PageRef]],
    failed: Callable[[Failure], None],
    recognizer: Recognizer | None,
    max_pixels: PixelBudget,
    processes: int,
) -> Iterator[list[Page]]:
    """Render pages batch by batch; a page that cannot be rendered goes to `failed` and is left out."""
    batch_of: dict[str, int] = {}

    def refs() -> Iterator[PageRef]:
        for number, ref in numbered:
            batch_of[ref.page_id] = number
            yield ref

    def pages() -> Iterator[Page]:
        images = render_pages(refs(), max_pixels=max_pixels, processes=processes)
        for read in images if recognizer is None else recognize_pages(images, recognizer):
            if isinstance(read, Page):
                yield read
            elif isinstance(read, Failure):
                failed(read)

    for _, batch in groupby(pages(), key=lambda page: batch_of.pop(page.page_id)):
        yield list(batch)
