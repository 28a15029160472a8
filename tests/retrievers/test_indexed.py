"""From documents to candidates: what `index_documents` stores is what a retriever then searches."""

from pathlib import Path

import numpy as np

from ridgerank.backbones.base import Backbone
from ridgerank.documents.render import read_pages
from ridgerank.indexing.index import index_documents
from ridgerank.records import Page
from ridgerank.retrievers.encoders.base import MultiVectorEncoder
from ridgerank.retrievers.load import load_retriever
from ridgerank.store.page_store import PageStore
from tests.conftest import write_pdf


def test_documents_indexed_with_a_retriever_are_searched_by_it(
    tmp_path: Path, small_backbone: Backbone, encoder: MultiVectorEncoder
) -> None:
    for number in range(3):
        write_pdf(tmp_path / f"in/{number}.pdf", pages=4, seed=number)
    uri = str(tmp_path / "store")
    index_documents([tmp_path / "in"], uri, small_backbone, processes=1, embedder=encoder)
    read = read_pages([tmp_path / "in"], max_pixels=small_backbone.max_pixels)
    pages = [page for page in read if isinstance(page, Page)]
    vectors = encoder.embed_pages([page.image for page in pages])
    [query] = encoder.embed_queries(["revenue in 2023"])
    scores = {
        page.page_id: float((query.numpy() @ page_vectors.astype(np.float32).T).max(axis=1).sum())
        for page, page_vectors in zip(pages, vectors, strict=True)
    }
    with PageStore.open(uri) as store:
        candidates = load_retriever(None, store, device="cpu").search("revenue in 2023", 5)
        stored = store.pages([page.page_id for page in pages], vectors=True)
    for page, expected in zip(stored, vectors, strict=True):
        assert page.vectors is not None
        np.testing.assert_array_equal(page.vectors, expected)
    order = sorted(scores, key=lambda page_id: (-scores[page_id], page_id))
    assert [candidate.page_id for candidate in candidates] == order[:5]
    np.testing.assert_allclose(
        [candidate.score for candidate in candidates],
        [scores[candidate.page_id] for candidate in candidates],
        rtol=1e-5,
    )
