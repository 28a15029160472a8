"""Rendered pages become rows of the store, in groups large enough to commit."""

import io
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from PIL.Image import Image

from ridgerank.backbones.base import Backbone
from ridgerank.indexing.names import Listing
from ridgerank.lineage import StorageSetting
from ridgerank.records import Page
from ridgerank.store.codec import compress
from ridgerank.store.layout import SharedPositions, block_shape
from ridgerank.store.page_store import PageRow, StoredPage
from ridgerank.store.vector_columns import PageEmbedder

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
    shared: SharedPositions | None = None
    """The positions before the page, where the store holds them once."""

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


def default_batch_pages(backbone: Backbone) -> int:
    """Pages per forward pass. The same on every machine: the last bits of prefixes depend on it."""
    return 8 if backbone.device.type == "cuda" else 4
