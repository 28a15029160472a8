"""Stage 1: every page embedded by a late interaction model, once; whoever wants its vectors gets these."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL.Image import Image

from experiments.datasets.base import Corpus
from experiments.reproduce.stages.checkpoint import Arrays, digest, in_parts
from ridgerank.documents.failures import Failure
from ridgerank.documents.pages import PageRef, list_pages, render_pages
from ridgerank.records import Page
from ridgerank.retrievers.encoders.base import MultiVectorEncoder
from ridgerank.store.vector_columns import VectorOrigin

_PAGES_A_PART = 64


@dataclass(frozen=True, slots=True, eq=False)
class PageVectors:
    """The vectors of a corpus' pages, one page after the other."""

    page_ids: list[str]
    vectors: NDArray[np.float16]
    """(vectors, dim)."""
    lengths: NDArray[np.int64]
    """(pages,)."""
    images: list[bytes]
    """(pages,): digest of the image each was made of."""


def pages_of(corpus: Corpus) -> list[PageRef]:
    """The different pages of a corpus, in the order of its files; one that cannot be listed is an error."""
    refs: dict[str, PageRef] = {}
    for found in list_pages(corpus.documents):
        if isinstance(found, PageRef):
            refs.setdefault(found.page_id, found)
    return list(refs.values())


def embed_pages(
    folder: Path,
    refs: Sequence[PageRef],
    encoder: Callable[[], MultiVectorEncoder],
    *,
    max_pixels: int,
    done: Callable[[int], None],
    say: Callable[[str], None],
) -> PageVectors:
    """Embed the pages; what was embedded before is read. A page that cannot be rendered is left out, said."""

    def make(items: range) -> Arrays:
        rendered = list(render_pages([refs[item] for item in items], max_pixels=max_pixels))
        for failure in (each for each in rendered if isinstance(each, Failure)):
            say(f"left out: {failure}")
        pages = [page for page in rendered if isinstance(page, Page)]
        made = encoder().embed_pages([page.image for page in pages])
        return {
            "page_ids": np.array([page.page_id for page in pages], dtype="U64"),
            "vectors": np.concatenate(made),
            "lengths": np.array([len(own) for own in made], dtype=np.int64),
            "images": np.array([image_key(page.image) for page in pages], dtype="S16"),
        }

    named = folder / f"vectors-{digest([str(max_pixels), *(ref.page_id for ref in refs)])}"
    kept = in_parts(named, len(refs), _PAGES_A_PART, make, done=done)
    return PageVectors(
        kept["page_ids"].tolist(), kept["vectors"], kept["lengths"], [bytes(key) for key in kept["images"]]
    )


class KeptEmbedder:
    """A `PageEmbedder` that hands out vectors made before; its encoder is loaded for an image it lacks."""

    def __init__(
        self, origin: VectorOrigin, encoder: Callable[[], MultiVectorEncoder], made: PageVectors
    ) -> None:
        self._origin = origin
        self._encoder = encoder
        ends = np.cumsum(made.lengths)[:-1]
        self._held: dict[bytes, NDArray[Any]] = dict(
            zip(made.images, np.split(made.vectors, ends), strict=True)
        )

    @property
    def origin(self) -> VectorOrigin:
        """What the encoder is."""
        return self._origin

    def embed_pages(self, images: Sequence[Image]) -> list[NDArray[np.float16]]:
        """Vectors (vectors, dim) of each page."""
        found = [self._held.get(image_key(image)) for image in images]
        return [
            self._encoder().embed_pages([image])[0] if own is None else own
            for image, own in zip(images, found, strict=True)
        ]


def image_key(image: Image) -> bytes:
    """A digest of what is to be seen; without zero bytes at its end, which numpy would drop."""
    header = f"{image.mode} {image.size}".encode()
    return hashlib.blake2b(header + image.tobytes(), digest_size=8).hexdigest().encode()
