"""Documents find their pages, whatever they are called."""

import pytest

from ridgerank.errors import DocumentError, ScoreError, StoreError
from ridgerank.integrations.matching import LibraryDocument, image_loader, rank_documents, score_in
from ridgerank.reranker.reranker import Reranker
from tests.integrations.conftest import QUERY, png, scan
from tests.store_calls import count_store_calls


def test_documents_rank_as_their_pages_do(reranker: Reranker) -> None:
    candidates = reranker.retriever.search(QUERY, 8)
    expected = [(page.page_id, page.fused_score) for page in reranker.rank(QUERY, candidates).pages]
    by_id = [LibraryDocument((document.page_id,), document.score) for document in candidates]
    by_reference = [
        LibraryDocument((None, 7, "unknown", reranker.store.reference(document.page_id)), document.score)
        for document in candidates
    ]
    unscored = [LibraryDocument((document.page_id, "report.pdf#1")) for document in candidates]
    for documents in (by_id, by_reference, unscored):
        ranked = rank_documents(reranker, QUERY, documents)
        assert [(page.page_id, page.fused_score) for _, page in ranked] == expected
        assert [candidates[index].page_id for index, _ in ranked] == [page_id for page_id, _ in expected]
        assert rank_documents(reranker, QUERY, documents, top_k=3) == ranked[:3]


def test_documents_of_one_page_share_its_score_and_stand_together(reranker: Reranker) -> None:
    names = ["report.pdf#1", "report.pdf#2", "report.pdf#1", "report.pdf#3"]
    ranked = rank_documents(reranker, QUERY, [LibraryDocument((name,)) for name in names])
    indices = [index for index, _ in ranked]
    first = indices.index(0)
    assert sorted(indices) == [0, 1, 2, 3]
    assert ranked[first + 1] == (2, ranked[first][1])
    assert len(rank_documents(reranker, QUERY, [LibraryDocument((name,)) for name in names], top_k=2)) == 2


def test_an_image_file_that_is_stored_is_found_by_its_bytes(reranker: Reranker) -> None:
    data = png(scan("a stored scan"))
    [(_, page)] = rank_documents(reranker, QUERY, [LibraryDocument(("elsewhere.png",), 1.0, lambda: data)])
    assert page.page_id == reranker.store.find("scan.png#1")


def test_an_image_of_no_stored_page_is_encoded_on_the_fly(reranker: Reranker) -> None:
    image = scan("a page in no store")
    expected = reranker.rank(QUERY, [("new", 2.0), ("report.pdf#1", 1.0)], encode_missing={"new": image})
    for fetch in (lambda: image, lambda: png(image)):
        documents = [LibraryDocument((), 2.0, fetch), LibraryDocument(("report.pdf#1",), 1.0)]
        ranked = rank_documents(reranker, QUERY, documents)
        found = [(page.page_id, page.fused_score) for _, page in ranked]
        assert found == [(page.page_id, page.fused_score) for page in expected.pages]


def test_a_document_that_names_no_page_is_pointed_out(reranker: Reranker) -> None:
    documents = [LibraryDocument(("report.pdf#1",)), LibraryDocument(("other.pdf#1", "words " * 99))]
    with pytest.raises(StoreError, match=r"document 2 of 2 names no page .*'other\.pdf#1', 'words .{33}…'\)"):
        rank_documents(reranker, QUERY, documents)
    with pytest.raises(StoreError, match=r"document 1 of 1 names no page .*it says nothing"):
        rank_documents(reranker, QUERY, [LibraryDocument(())])


def test_scores_in_metadata_are_numbers_or_absent() -> None:
    assert score_in({"score": 2}, "score") == 2.0
    assert score_in({}, "score") is None
    with pytest.raises(ScoreError, match=r"metadata\['score'\] is 'high', expected"):
        score_in({"score": "high"}, "score")


def test_images_that_cannot_be_read_say_so(reranker: Reranker) -> None:
    with pytest.raises(DocumentError, match="not base64"):
        rank_documents(reranker, QUERY, [LibraryDocument((), 1.0, image_loader("no base64!", None))])
    with pytest.raises(DocumentError, match=r"absent\.png: No such file"):
        rank_documents(reranker, QUERY, [LibraryDocument((), 1.0, image_loader(None, "absent.png"))])
    with pytest.raises(DocumentError, match="not a PNG, JPEG, TIFF or WebP"):
        rank_documents(reranker, QUERY, [LibraryDocument((), 1.0, lambda: b"no image")])
    assert image_loader(None, None) is None


def test_the_store_is_asked_once_for_the_names_of_all_documents(
    reranker: Reranker, monkeypatch: pytest.MonkeyPatch
) -> None:
    lookups = count_store_calls(monkeypatch).lookups
    documents = [LibraryDocument(("unheard of", f"report.pdf#{page}"), 1.0) for page in range(1, 7)]
    rank_documents(reranker, QUERY, documents)
    assert lookups[0] == 12
    assert len(lookups) == 2  # the second is the reranker's own
