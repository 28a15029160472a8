"""Stages 1 and 2: every page embedded once by a late interaction model, and the candidates of every query."""

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL.Image import Image

from experiments.datasets.base import BenchmarkCorpus
from experiments.reproduce.stages.checkpoint import Arrays, compute_in_parts, short_digest
from ridgerank.documents.render import PageRef, list_pages, render_pages
from ridgerank.documents.sources import Failure
from ridgerank.ragged import Floats
from ridgerank.records import Candidate, Page
from ridgerank.retrievers.base import Retriever, top_candidates
from ridgerank.retrievers.encoders import MultiVectorEncoder
from ridgerank.retrievers.late_interaction import maxsim
from ridgerank.store.vector_columns import VectorOrigin


class InMemoryLateInteraction(Retriever):
    """Exact MaxSim over vectors in memory."""

    def __init__(
        self, encoder: MultiVectorEncoder, page_ids: list[str], vectors: list[NDArray[np.float16]]
    ) -> None:
        self.name = encoder.name
        self._encoder = encoder
        self._page_ids = page_ids
        self._vectors = np.concatenate(vectors)
        self._lengths = np.array([len(page_vectors) for page_vectors in vectors], dtype=np.int64)

    def search_many(self, queries: Sequence[str], k: int) -> list[list[Candidate]]:
        """Search for each query."""
        return [top_candidates(self._page_ids, scores, k) for scores in self._scores(queries)]

    def score(self, query: str, page_ids: Sequence[str]) -> Floats:
        """Score given pages."""
        numbers = {page_id: number for number, page_id in enumerate(self._page_ids)}
        scores: Floats = self._scores([query])[0][[numbers[page_id] for page_id in page_ids]]
        return scores

    def _scores(self, queries: Sequence[str]) -> Floats:
        return maxsim(self._encoder.embed_queries(queries), self._vectors, self._lengths)


_PAGES_PER_PART = 64


@dataclass(frozen=True, slots=True, eq=False)
class PageVectors:
    """The vectors of a corpus' pages, one page after the other."""

    page_ids: list[str]
    vectors: NDArray[np.float16]
    """(vectors, dim)."""
    lengths: NDArray[np.int64]
    """(pages,)."""
    images: list[bytes]
    """(pages,): digest of the image of each page."""


def list_corpus_pages(corpus: BenchmarkCorpus) -> list[PageRef]:
    """The different pages of a corpus, in the order of its files; one that cannot be listed is an error."""
    refs: dict[str, PageRef] = {}
    for listed in list_pages(corpus.documents):
        if isinstance(listed, PageRef):
            refs.setdefault(listed.page_id, listed)
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
    """Embed what no earlier run embedded; a page that cannot be rendered is reported and left out."""

    def compute(items: range) -> Arrays:
        rendered = list(render_pages([refs[item] for item in items], max_pixels=max_pixels))
        for failure in (each for each in rendered if isinstance(each, Failure)):
            say(f"left out: {failure}")
        pages = [page for page in rendered if isinstance(page, Page)]
        vectors = encoder().embed_pages([page.image for page in pages])
        return {
            "page_ids": np.array([page.page_id for page in pages], dtype="U64"),
            "vectors": np.concatenate(vectors),
            "lengths": np.array([len(of_page) for of_page in vectors], dtype=np.int64),
            "images": np.array([image_key(page.image) for page in pages], dtype="S16"),
        }

    part_folder = folder / f"vectors-{short_digest([str(max_pixels), *(ref.page_id for ref in refs)])}"
    arrays = compute_in_parts(part_folder, len(refs), _PAGES_PER_PART, compute, done=done)
    return PageVectors(
        arrays["page_ids"].tolist(),
        arrays["vectors"],
        arrays["lengths"],
        [bytes(key) for key in arrays["images"]],
    )


class CachedEmbedder:
    """A `PageEmbedder` that returns cached vectors; its encoder is loaded only for an image it lacks."""

    def __init__(
        self, origin: VectorOrigin, encoder: Callable[[], MultiVectorEncoder], pages: PageVectors
    ) -> None:
        self._origin = origin
        self._encoder = encoder
        ends = np.cumsum(pages.lengths)[:-1]
        self._vectors: dict[bytes, NDArray[Any]] = dict(
            zip(pages.images, np.split(pages.vectors, ends), strict=True)
        )

    @property
    def origin(self) -> VectorOrigin:
        """What the encoder is."""
        return self._origin

    def embed_pages(self, images: Sequence[Image]) -> list[NDArray[np.float16]]:
        """Vectors (vectors, dim) of each page."""
        cached = [self._vectors.get(image_key(image)) for image in images]
        return [
            self._encoder().embed_pages([image])[0] if vectors is None else vectors
            for image, vectors in zip(images, cached, strict=True)
        ]


def image_key(image: Image) -> bytes:
    """A digest of the pixels, as hex: numpy would drop zero bytes at its end."""
    header = f"{image.mode} {image.size}".encode()
    return hashlib.blake2b(header + image.tobytes(), digest_size=8).hexdigest().encode()


QUERIES_PER_PART = 25


@dataclass(frozen=True, slots=True, eq=False)
class CandidatePools:
    """What a retriever returned: the same number of candidates for every query."""

    page_ids: NDArray[np.str_]
    """(queries, depth), best first."""
    scores: Floats
    """(queries, depth)."""
    retrieval_ms: Floats
    """(queries,)."""

    def of(self, query: int, depth: int) -> list[Candidate]:
        """The first candidates of one query."""
        ids, scores = self.page_ids[query, :depth].tolist(), self.scores[query, :depth].tolist()
        return [Candidate(page_id, score) for page_id, score in zip(ids, scores, strict=True)]


def find_pools(
    folder: Path,
    corpus: BenchmarkCorpus,
    retriever: Callable[[], Retriever],
    *,
    depth: int,
    done: Callable[[int], None],
) -> CandidatePools:
    """Search for every query of a corpus; `depth` pages each, or all there are."""

    def compute(items: range) -> Arrays:
        loaded = retriever()
        rankings, seconds = [], []
        for item in items:
            start = time.perf_counter()
            rankings.append(loaded.search(corpus.queries[item].text, depth))
            seconds.append(time.perf_counter() - start)
        return {
            "page_ids": np.array(
                [[candidate.page_id for candidate in ranking] for ranking in rankings], dtype="U64"
            ),
            "scores": np.array(
                [[candidate.score for candidate in ranking] for ranking in rankings], dtype=np.float64
            ),
            "retrieval_ms": 1000.0 * np.array(seconds),
        }

    arrays = compute_in_parts(
        folder / f"pools-{queries_digest(corpus)}-{depth}",
        len(corpus.queries),
        QUERIES_PER_PART,
        compute,
        done=done,
    )
    return CandidatePools(arrays["page_ids"], arrays["scores"], arrays["retrieval_ms"])


def queries_digest(corpus: BenchmarkCorpus) -> str:
    """A name for the queries of a corpus, in this order."""
    return short_digest(text for query in corpus.queries for text in (query.query_id, query.text))
