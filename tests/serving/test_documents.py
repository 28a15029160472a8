"""Documents of a request: the store is asked once for all of them, and never from the event loop."""

import pytest
from fastapi.testclient import TestClient

from ridgerank.reranker.reranker import Reranker
from ridgerank.serving.answers import MAX_CHARACTERS, find_matching_line
from ridgerank.serving.documents import resolve_documents
from ridgerank.serving.http_errors import ApiError
from ridgerank.serving.settings import Limits, ServeSettings
from tests.serving.conftest import Corpus
from tests.store_calls import StoreCalls, count_store_calls


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> StoreCalls:
    return count_store_calls(monkeypatch)


def test_the_event_loop_never_waits_for_the_store(
    client: TestClient, reranker: Reranker, corpus: Corpus, calls: StoreCalls
) -> None:
    query, page_id = corpus.queries[0], reranker.store.page_ids()[0]
    requests = {
        "/v1/rerank": {"query": query, "documents": [page_id]},
        "/v1/score": {"queries": query, "documents": [page_id]},
        "/v1/explain": {"query": query, "page": page_id},
        "/v1/search": {"query": query, "k": 3},
    }
    for path, body in requests.items():
        assert client.post(path, json=body).status_code == 200
    for kind in ("image", "thumbnail"):
        assert client.get(f"/v1/pages/{page_id}/{kind}").status_code == 200
    assert calls.lookups
    assert calls.in_event_loop == 0


def test_the_first_document_that_cannot_be_ranked_is_named(reranker: Reranker) -> None:
    settings = ServeSettings(limits=Limits(images=1))
    sent = ["a text", "http://example.org/", "no-such.pdf#1"]
    with pytest.raises(ApiError, match=r"^documents\[1\] is an address"):
        resolve_documents(sent, reranker.store, settings, on_missing="error")
    kinds = [each.kind for each in resolve_documents(sent, reranker.store, settings).attachments.values()]
    assert kinds == ["text", "unreadable", "unreadable"]
    with pytest.raises(ApiError, match="2 documents are images that are not stored, more than the 1"):
        resolve_documents(2 * ["data:image/png;base64,iVBORw0KGgo="], reranker.store, settings)


@pytest.mark.parametrize("edge", [" ", "\x00", "\r\n", "\ufeff"])
def test_a_name_with_white_space_at_its_end_is_a_name_not_a_text(reranker: Reranker, edge: str) -> None:
    settings = ServeSettings(encode_missing=True)
    [page_id] = reranker.store.page_ids()[:1]
    name = reranker.store.reference(page_id)
    for document in (name + edge, edge + name, page_id + edge):
        assert resolve_documents([document], reranker.store, settings).names == (page_id,)
    with pytest.raises(ApiError, match="no-such"):
        resolve_documents([f"no-such.pdf#4{edge}"], reranker.store, settings, on_missing="error")


@pytest.mark.parametrize(
    ("document", "kind"),
    [
        ("DATA:image/png;base64,iVBORw0KGgo=", "image/png"),
        (" data:IMAGE/PNG;x=1;BASE64,iVBORw0KGgo=", "image/png"),
        ("DATA:text/html,x", "unreadable"),
        ("data:,x", "unreadable"),
        ("Data:image/svg+xml;base64,AAAA", "unreadable"),
        ("Data: see below, and the table", "text"),
    ],
)
def test_a_data_uri_is_an_image_in_any_case_or_cannot_be_read(
    reranker: Reranker, document: str, kind: str
) -> None:
    resolved = resolve_documents([document], reranker.store, ServeSettings())
    assert [attachment.kind for attachment in resolved.attachments.values()] == [kind]


TEXT = "Annual report\n\nRevenue rose in Asia.\n| Revenue | 2019 | operating margins | 12 % |\nCosts fell."


@pytest.mark.parametrize(
    ("query", "line", "marked"),
    [
        (
            "What was the operating margin in 2019?",
            "Revenue 2019 operating margins 12 %",
            "2019 operating margins",
        ),
        ("Asian revenue", "Revenue rose in Asia.", "Revenue Asia"),
        ("zebra farming on Mars", "Annual report", ""),
    ],
)
def test_it_is_the_line_with_most_of_the_querys_words(query: str, line: str, marked: str) -> None:
    matched = find_matching_line(TEXT, query)
    assert matched is not None
    assert matched.text == line
    assert " ".join(matched.text[start:end] for start, end in matched.marks) == marked


def test_a_long_line_is_cut_around_the_words() -> None:
    matched = find_matching_line(f"{'before ' * 80}the operating margin{' after' * 80}", "operating margin")
    assert matched is not None
    assert len(matched.text) <= MAX_CHARACTERS + 4
    assert matched.text.startswith("… ")
    assert matched.text.endswith(" …")
    assert [matched.text[start:end] for start, end in matched.marks] == ["operating", "margin"]
    assert find_matching_line(" \n--\n", "anything") is None
