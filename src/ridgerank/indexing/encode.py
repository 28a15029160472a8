"""Listed pages are rendered, encoded and compressed: rows of the store, in groups large enough to commit."""

import io
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray
from PIL.Image import Image

from ridgerank.backbones.base import Backbone
from ridgerank.backbones.decoder import Prefix
from ridgerank.documents.ocr import Recognizer, recognize_pages
from ridgerank.documents.render import PageRef, render_pages
from ridgerank.documents.sources import Failure
from ridgerank.errors import StoreError
from ridgerank.lineage import Lineage, StorageSetting
from ridgerank.page_sizing import PixelBudget
from ridgerank.records import Page
from ridgerank.store import codec
from ridgerank.store.layout import Basis, PackedPrefix, digest_basis
from ridgerank.store.page_store import PageRow, StoredPage
from ridgerank.store.vector_columns import PageEmbedder, VectorOrigin

log = logging.getLogger(__name__)

_SAMPLED_PAGES = 64
_MUCH_LOST = 0.02
"""A page that loses this share more than twice what sampled pages lose is named."""
_COMMIT_SECONDS = 15.0
_COMMIT_BYTES = 128 << 20
_COMMIT_PAGES = 64
"""Encoded pages are committed when one of these is reached: a kill loses at most this much work."""
_THUMBNAIL_PIXELS = 320


@dataclass(slots=True)
class Listing:
    """The pages under the paths, by id, each with all its references."""

    refs: dict[str, PageRef] = field(default_factory=dict)
    references: dict[str, list[str]] = field(default_factory=dict)
    documents: dict[Path, list[PageRef]] = field(default_factory=dict)
    """The pages of each file, copies of others included."""
    paths: dict[str, Path] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    skipped_files: int = 0

    def number_batches(self, done: frozenset[str], size: int) -> Iterator[tuple[int, PageRef]]:
        """The pages to encode, each with the number of its batch in the whole list."""
        for position, (page_id, ref) in enumerate(self.refs.items()):
            if page_id not in done:
                yield position // size, ref

    def set_names(self, names: Mapping[Path, Sequence[str]]) -> None:
        """Give the pages of every file its names, the first of which is the page's source."""
        self.refs, self.references = {}, {}
        self.paths = {name: path for path, file_names in names.items() for name in file_names}
        for path, refs in self.documents.items():
            first, *aliases = names[path]
            for ref in refs:
                named = replace(ref, source=replace(ref.source, name=first))
                self.refs.setdefault(ref.page_id, named)
                references = (named.reference, *(f"{alias}#{ref.number}" for alias in aliases))
                self.references.setdefault(ref.page_id, []).extend(references)


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
    def vector_bytes(self) -> int:
        """Bytes of the vectors."""
        new = [row.page.vectors for row in self.rows if row.page.vectors is not None]
        return sum(each.nbytes for each in (*new, *self.vectors.values()))

    @property
    def nbytes(self) -> int:
        """Bytes of prefixes and vectors."""
        return self.vector_bytes + sum(row.prefix.nbytes for row in self.rows if row.prefix is not None)


@dataclass(frozen=True, slots=True)
class PageEncoder:
    """The models that encode pages, and their settings."""

    backbone: Backbone
    embedder: PageEmbedder | None
    storage: StorageSetting
    basis: Basis | None = None
    """What pages are coded in; None for int8, and until `fit` has found it."""

    @classmethod
    def create(
        cls,
        backbone: Backbone,
        embedder: PageEmbedder | None,
        storage: StorageSetting,
        basis: Basis | None = None,
    ) -> Self:
        """An encoder for this setting; a layer that the model lacks is refused."""
        backbone.geometry.require_layers(storage.exit_layer)
        if basis is not None:
            storage = replace(storage, basis=digest_basis(basis.to_bytes()))
        return cls(backbone, embedder, storage, basis)

    @property
    def needs_basis(self) -> bool:
        """Whether a basis has to be fitted first."""
        return self.storage.quality is not None and self.basis is None

    def fit(
        self, batches: Iterable[Sequence[Page]], listing: Listing, lost: Sequence[Failure] = ()
    ) -> tuple["PageEncoder", EncodedPages]:
        """An encoder whose basis is fitted on these pages, and the pages, encoded; `lost` were not read."""
        assert self.storage.quality is not None
        shared = codec.encode_shared(self.backbone, self.storage.exit_layer)
        read: list[tuple[Sequence[Page], dict[str, NDArray[np.float16]], list[codec.KeptPositions]]] = []
        for batch in batches:
            vectors, prefixes = self._embed(batch), self._read(batch)
            of_batch = [codec.keep_positions(each, self.storage.keep, shared.shape[3]) for each in prefixes]
            read.append((batch, vectors, of_batch))
        kept = [page for _, _, of_batch in read for page in of_batch]
        if not kept:
            found = lost[0] if lost else "none was found"
            raise StoreError(
                f"no page can be read ({found}), and the basis of a new store is fitted to its first pages; "
                "check the documents, or take the basis of another store"
            )
        rotation = self.backbone.rotation(len(kept[0].rotary))
        basis = codec.fit_basis(
            kept,
            quality=self.storage.quality,
            rotation=rotation,
            shared=shared,
            layers_per_group=codec.choose_group(self.backbone.geometry),
        )
        fitted = self.create(self.backbone, self.embedder, self.storage, basis)
        encoded = EncodedPages()
        for batch, vectors, of_batch in read:
            encoded += EncodedPages(
                fitted._rows(batch, [codec.encode_kept(page, basis) for page in of_batch], vectors, listing)
            )
        return fitted, encoded

    def encode(self, pages: Sequence[Page], listing: Listing, stored: frozenset[str]) -> EncodedPages:
        """Run one batch of rendered pages through both models; a stored page needs its vectors only."""
        vectors = self._embed(pages)
        new = [page for page in pages if page.page_id not in stored]
        rows = self._rows(new, self.compress(new), vectors, listing)
        return EncodedPages(rows, vectors)

    def compress(self, pages: Sequence[Page]) -> list[PackedPrefix]:
        """Pages as the store holds them."""
        return [codec.compress(prefix, self.storage.keep, self.basis) for prefix in self._read(pages)]

    def _embed(self, pages: Sequence[Page]) -> dict[str, NDArray[np.float16]]:
        """The retriever's vectors by page id, none without a retriever."""
        if self.embedder is None:
            return {}
        embedded = self.embedder.embed_pages([page.image for page in pages])
        return dict(zip((page.page_id for page in pages), embedded, strict=True))

    def _read(self, pages: Sequence[Page]) -> list[Prefix]:
        contents = [self.backbone.content(page) for page in pages]
        return self.backbone.encode(contents, exit_layer=self.storage.exit_layer)

    def _rows(
        self,
        pages: Sequence[Page],
        packed: Sequence[PackedPrefix],
        vectors: dict[str, NDArray[np.float16]],
        listing: Listing,
    ) -> list[PageRow]:
        """Rows of new pages, which take their vectors with them."""
        rows = []
        for page, prefix in zip(pages, packed, strict=True):
            rows.append(PageRow(_stored_page(page, listing, vectors.pop(page.page_id, None)), prefix))
            if self.basis is not None and prefix.lost > _MUCH_LOST + 2 * self.basis.lost:
                log.warning(
                    "%s is unlike the pages this store was fitted to: %.1f %% of it is lost, of those "
                    "at most %.1f %%; documents like it belong into a store of their own",
                    page.reference,
                    100 * prefix.lost,
                    100 * self.basis.lost,
                )
        return rows


def sample_batches(listing: Listing, batch_pages: int) -> list[tuple[int, PageRef]]:
    """Pages to fit a basis on: whole batches, spread evenly over all documents."""
    numbered = list(listing.number_batches(frozenset(), batch_pages))
    batches = -(-len(listing.refs) // batch_pages)
    chosen = set(codec.even_indices(batches, min(batches, _SAMPLED_PAGES // batch_pages)).tolist())
    return [(number, ref) for number, ref in numbered if number in chosen]


def read_texts(
    refs: Iterable[PageRef], listing: Listing, failed: Callable[[Failure], None], processes: int
) -> Iterator[list[PageRow]]:
    """Pending rows, with text and a thumbnail: the pages can be found before they are encoded."""
    numbered = ((number // _COMMIT_PAGES, ref) for number, ref in enumerate(refs))
    for pages in render_batches(numbered, failed, None, _THUMBNAIL_PIXELS**2, processes):
        yield [PageRow(_stored_page(page, listing, None), None) for page in pages]


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


def _stored_page(page: Page, listing: Listing, vectors: NDArray[np.float16] | None) -> StoredPage:
    return StoredPage(
        page_id=page.page_id,
        references=tuple(listing.references[page.page_id]),
        source=listing.refs[page.page_id].source.name,
        text=page.text,
        thumbnail=_thumbnail(page.image),
        vectors=vectors,
    )


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
    basis: Basis | None


def describe_encoding(page_encoder: PageEncoder) -> EncodingDescription:
    """Describe the models and the setting of an encoder."""
    backbone, embedder = page_encoder.backbone, page_encoder.embedder
    return EncodingDescription(
        backbone.lineage(page_encoder.storage),
        8 if backbone.device.type == "cuda" else 4,
        None if embedder is None else embedder.origin,
        page_encoder.basis,
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
