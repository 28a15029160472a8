"""Rendered pages through the models, gathered until a commit is worth its while."""

import io
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from PIL.Image import Image

from ridgerank.backbones.base import Backbone
from ridgerank.backbones.prefix import Prefix
from ridgerank.indexing.listing import Listing
from ridgerank.indexing.progress import EncodeHook
from ridgerank.records import Page
from ridgerank.store.compress import compress
from ridgerank.store.layout import block_of
from ridgerank.store.pruning import Keep
from ridgerank.store.rows import PageRow, StoredPage
from ridgerank.store.vector_columns import PageEmbedder

_COMMIT_SECONDS = 15.0
_COMMIT_BYTES = 128 << 20
_COMMIT_PAGES = 64
"""Encoded pages wait for a commit until one of these is reached: what a kill can cost, at most."""
_THUMBNAIL_PIXELS = 320


@dataclass(frozen=True, slots=True)
class Made:
    """What was made of some pages: rows for new ones, vectors for those stored before."""

    rows: list[PageRow] = field(default_factory=list)
    vectors: dict[str, NDArray[np.float16]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.rows) + len(self.vectors)

    def __add__(self, other: "Made") -> "Made":
        return Made([*self.rows, *other.rows], {**self.vectors, **other.vectors})

    @property
    def prefix_bytes(self) -> int:
        """Bytes of the prefixes."""
        return sum(block_of(row.prefix).nbytes for row in self.rows)

    @property
    def nbytes(self) -> int:
        """Bytes of prefixes and vectors."""
        own = [row.page.vectors for row in self.rows if row.page.vectors is not None]
        return self.prefix_bytes + sum(vectors.nbytes for vectors in (*own, *self.vectors.values()))


@dataclass(frozen=True, slots=True)
class PageReader:
    """The models that look at pages, and their settings."""

    backbone: Backbone
    embedder: PageEmbedder | None
    onlooker: EncodeHook | None
    exit_layer: int
    join_layer: int
    keep: Keep

    def read(self, pages: Sequence[Page], listing: Listing, stored: frozenset[str]) -> Made:
        """One batch of rendered pages through both models; a stored page needs its vectors only."""
        vectors: dict[str, NDArray[np.float16]] = {}
        if self.embedder is not None:
            embedded = self.embedder.embed_pages([page.image for page in pages])
            vectors = dict(zip((page.page_id for page in pages), embedded, strict=True))
        new = [page for page in pages if page.page_id not in stored]
        prefixes = self._encode(new)
        rows = [
            PageRow(
                page=StoredPage(
                    page_id=page.page_id,
                    references=tuple(listing.names[page.page_id]),
                    source=listing.refs[page.page_id].source.name,
                    text=page.text,
                    thumbnail=_thumbnail(page.image),
                    vectors=vectors.pop(page.page_id, None),
                ),
                prefix=compress(prefix, page.image, self.keep),
            )
            for page, prefix in zip(new, prefixes, strict=True)
        ]
        return Made(rows, vectors)

    def _encode(self, pages: Sequence[Page]) -> list[Prefix]:
        """The layers to store of each page; a page somebody wants to look at is read to its full depth."""
        contents = [self.backbone.content(page) for page in pages]
        looked_at = [place for place, page in enumerate(pages) if self._wanted(page)]
        if self.onlooker is None or not looked_at:
            return self.backbone.encode(contents, exit_layer=self.exit_layer, join_layer=self.join_layer)
        # The layers below the exit are computed just as without anyone looking on: the stored bytes agree.
        whole = self.backbone.encode(contents, exit_layer=self.backbone.geometry.layers)
        self.onlooker.look(
            [pages[place].page_id for place in looked_at], [whole[place] for place in looked_at]
        )
        return [prefix.layers(self.join_layer, self.exit_layer) for prefix in whole]

    def _wanted(self, page: Page) -> bool:
        return self.onlooker is not None and self.onlooker.wants(page.page_id)


def gathered(batches: Iterable[Made]) -> Iterator[Made]:
    """Whole batches gathered until a commit is worth its while."""
    waiting, since = Made(), time.monotonic()
    for batch in batches:
        waiting += batch
        late = time.monotonic() - since > _COMMIT_SECONDS
        if late or waiting.nbytes > _COMMIT_BYTES or len(waiting) >= _COMMIT_PAGES:
            yield waiting
            waiting, since = Made(), time.monotonic()
    if len(waiting):
        yield waiting


def _thumbnail(image: Image) -> bytes:
    small = image.copy()
    small.thumbnail((_THUMBNAIL_PIXELS, _THUMBNAIL_PIXELS))
    encoded = io.BytesIO()
    small.save(encoded, "WEBP", quality=70, method=4)
    return encoded.getvalue()


def default_batch_pages(backbone: Backbone) -> int:
    """Pages that go through a model at once; the same anywhere: the last bits of prefixes depend on it."""
    return 8 if backbone.device.type == "cuda" else 4
