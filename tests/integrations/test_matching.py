"""Documents find their pages, whatever they are called."""

import pytest

from ridgerank.errors import DocumentError
from ridgerank.integrations.matching import image_loader, rank_documents, score_in
from ridgerank.reranker.candidates import Document
from ridgerank.reranker.reranker import Reranker
from tests.integrations.conftest import QUERY, png, scan
from tests.store_calls import count_store_calls


def test_documents_rank_as_their_pages_do(reranker: Reranker) -> None:
    candidates = reranker.retriever.search(QUERY, 8)
    expected = [(page.page_id, page.fused_score) for page in reranker.rank(QUERY, candidates).pages]
    by_id = [Document((document.page_id,), score=document.score) for document in candidates]
    by_reference = [
        Document((None, 7, "unknown", reranker.store.reference(document.page_id)), score=document.score)
        for document in candidates
    ]
    for documents in (by_id, by_reference):
        ranked = rank_documents(reranker, QUERY, documents)
        assert [(page.page_id, page.fused_score) for _, page in ranked] == expected
        assert [candidates[index].page_id for index, _ in ranked] == [page_id for page_id, _ in expected]
        assert rank_documents(reranker, QUERY, documents, top_k=3) == ranked[:3]


def test_documents_of_one_page_share_its_score_and_stand_together(reranker: Reranker) -> None:
    names = ["report.pdf#1", "report.pdf#2", "report.pdf#1", "report.pdf#3"]
    ranked = rank_documents(reranker, QUERY, [Document((name,)) for name in names])
    indices = [index for index, _ in ranked]
    first = indices.index(0)
    assert sorted(indices) == [0, 1, 2, 3]
    assert ranked[first + 1] == (2, ranked[first][1])
    assert len(rank_documents(reranker, QUERY, [Document((name,)) for name in names], top_k=2)) == 2


def test_an_image_file_that_is_stored_is_found_by_its_bytes(reranker: Reranker) -> None:
    data = png(scan("a stored scan"))
    [(_, page)] = rank_documents(reranker, QUERY, [Document(("elsewhere.png",), image=lambda: data)])
    assert page.page_id == reranker.store.find("scan.png#1")


def test_a_document_that_names_no_page_is_pointed_out(reranker: Reranker) -> None:
    documents = [Document(("report.pdf#1",)), Document(("other.pdf#1", "words " * 99))]
    assert [index for index, _ in rank_documents(reranker, QUERY, documents)] == [0, 1]
    with pytest.raises(DocumentError, match=r"documents\[1\]: 'other\.pdf#1', 'words .{33}…' names no page"):
        rank_documents(reranker, QUERY, documents, on_missing="error")
    with pytest.raises(DocumentError, match=r"documents\[0\]: empty; send a text"):
        rank_documents(reranker, QUERY, [Document()], on_missing="error")


def test_scores_are_found_where_libraries_put_them() -> None:
    found: list[dict[str, object]] = [
        {"score": 2},
        {"_score": 7.5},
        {"distance": 0.25},
        {"score": "high"},
        {},
    ]
    assert [score_in(metadata) for metadata in found] == [2.0, 7.5, -0.25, None, None]
    assert score_in({"mine": 3.0, "score": 2}, "mine") == 3.0


def test_images_that_cannot_be_read_say_so(reranker: Reranker) -> None:
    for image, why in (
        (image_loader("no base64!", None), "base64"),
        (image_loader(None, "absent.png"), r"No such file .*absent\.png"),
        (lambda: b"no image", "not a PNG, JPEG, TIFF or WebP"),
    ):
        with pytest.raises(DocumentError, match=why):
            rank_documents(reranker, QUERY, [Document(image=image)], on_missing="error")
    assert image_loader(None, None) is None


def test_the_store_is_asked_once_for_the_names_of_all_documents(
    reranker: Reranker, monkeypatch: pytest.MonkeyPatch
) -> None:
    lookups = count_store_calls(monkeypatch).lookups
    documents = [Document(("unheard of", f"report.pdf#{page}"), score=1.0) for page in range(1, 7)]
    rank_documents(reranker, QUERY, documents)
    assert lookups == [12]
