"""What the server must refuse, each with a 4xx in its own shape."""

import base64
import json
import zlib
from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient

from ridgerank.serving.settings import Limits
from tests.documents.sample_files import png_bomb
from tests.serving.conftest import SECONDS, MakeService, client_of

QUERY = "costs"


@pytest.fixture
def client(make_service: MakeService) -> Iterator[TestClient]:
    limits = Limits(
        body_bytes=2_000_000, candidates=50, images=4, image_pixels=1_000_000, deadline_seconds=SECONDS
    )
    with client_of(make_service(encode_missing=True, limits=limits)) as opened:
        yield opened


def uri(data: bytes, kind: str = "png") -> str:
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


ZIP_BOMB = b"Comment\0\0" + zlib.compress(bytes(100_000_000), 9)

DOCUMENTS = {
    "traversal": "../../../../etc/passwd#1",
    "traversal, encoded": "..%2f..%2fetc%2fpasswd#1",
    "absolute path": "/etc/passwd#1",
    "null byte": {"page": "report.pdf\0#1"},
    "file address": {"image": "file:///etc/passwd"},
    "file address as a text": "file:///etc/passwd",
    "metadata service": {"image": "http://169.254.169.254/latest/meta-data/"},
    "address as a text": "http://169.254.169.254/latest/meta-data/",
    "address in parts": {"content": [{"type": "image_url", "image_url": {"url": "http://127.0.0.1:22/"}}]},
    "gopher": {"image": "gopher://127.0.0.1:6379/_FLUSHALL"},
    "path as an image": {"image": "/etc/passwd"},
    "data that is no image": {"image": "data:text/html;base64,PGI+"},
    "svg, which may hold addresses": {"image": uri(b"<svg xmlns='http://www.w3.org/2000/svg'/>", "svg+xml")},
    "no base64": {"image": "data:image/png;base64,%%%%"},
    "an empty image": {"image": "data:image/png;base64,"},
    "garbage as an image": {"image": uri(b"garbage" * 100)},
    "a broken image": {"image": uri(png_bomb(100)[:60])},
    "an image bomb": {"image": uri(png_bomb(60_000))},
    "an image beyond the limit": {"image": uri(png_bomb(1001))},
    "a zip bomb in an image": {"image": uri(png_bomb(64, text=ZIP_BOMB))},
    "a PostScript program": {"image": uri(b"%!PS-Adobe-3.0\n(x) show", "png")},
    "a text of many pages": "word " * 3900,
    "a text beyond the limit": "x" * 30_000,
    "a blank text": "  \n ",
    "a number": 5,
    "nothing": None,
    "a list": ["a"],
    "an unknown field": {"page": "a.pdf#1", "path": "/etc/passwd"},
    "two kinds at once": {"text": "a", "image": "data:image/png;base64,"},
    "many parts": {"content": [{"type": "text", "text": "a"}] * 17},
    "two images in one": {"content": [{"type": "image_url", "image_url": {"url": uri(png_bomb(9))}}] * 2},
    "a source outside the store": {"source": "../../../etc/passwd", "page": 1},
    "a page before the first": {"source": "report.pdf", "page": 0},
    "a lone surrogate": "\ud800 text",
}


@pytest.mark.parametrize("document", DOCUMENTS.values(), ids=DOCUMENTS.keys())
def test_hostile_documents_are_refused(client: TestClient, document: object) -> None:
    body = json.dumps({"query": QUERY, "documents": [document], "retriever_scores": [1.0]})
    answer = client.post("/v1/rerank", content=body, headers={"content-type": "application/json"})
    refused(answer.status_code, answer.text)


BODIES = {
    "not JSON": b"{",
    "nothing": b"",
    "a list": b"[]",
    "deep": b"[" * 100_000 + b"]" * 100_000,
    "deep in a field": b'{"query": ' + b"[" * 50_000 + b"]" * 50_000 + b"}",
    "a huge number": b'{"query": "x", "k": ' + b"9" * 5000 + b"}",
    "not UTF-8": b'{"query": "\xff\xfe"}',
    "NaN": b'{"query": "x", "documents": ["a.pdf#1"], "retriever_scores": [NaN]}',
    "Infinity": b'{"query": "x", "documents": ["a.pdf#1"], "retriever_scores": [1e999]}',
    "k below one": b'{"query": "x", "k": 0}',
    "k beyond any limit": b'{"query": "x", "k": 100000000}',
    "k beyond the server's limit": b'{"query": "x", "k": 51}',
    "k that is no number": b'{"query": "x", "k": "many"}',
    "a query that is a number": b'{"query": 5}',
    "a blank query": b'{"query": "   "}',
    "a query beyond the limit": b'{"query": "' + b"x" * 3000 + b'"}',
    "a query that is a list": b'{"query": ["x"]}',
    "an unknown field": b'{"query": "x", "file": "/etc/passwd"}',
    "a deadline of nothing": b'{"query": "x", "deadline_ms": 0}',
    "a lone surrogate": b'{"query": "\\ud800"}',
}


@pytest.mark.parametrize("path", ["/v1/search", "/v2/rerank", "/v1/score", "/v1/explain"])
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
def test_hostile_bodies_are_refused(client: TestClient, path: str, body: bytes) -> None:
    answer = client.post(path, content=body, headers={"content-type": "application/json"})
    refused(answer.status_code, answer.text)


PATHS = [
    "/v1/pages/../../../etc/passwd/image",
    "/v1/pages/..%2f..%2fetc%2fpasswd/image",
    "/v1/pages/%2e%2e%2f%2e%2e/thumbnail",
    f"/v1/pages/{'A' * 64}/image",
    f"/v1/pages/{'0' * 63}/image",
    f"/v1/pages/{'0' * 64}/image",
    f"/v1/pages/{'0' * 64}%00/image",
    f"/v1/pages/{'0' * 64}%0a/image",
    f"/v1/pages/{'0' * 60_000}/thumbnail",
    "/page/../serving/app.py",
    *("/page/", "/page"),
    *("/page/../page.py", "/page/%2e%2e/page.py", "/page/..%2fpage.py"),
    "/..%2fapp.py",
    "/page.js/..%2f..%2fapp.py",
    "/static/../../etc/passwd",
    "//etc/passwd",
    "/redoc",
]


@pytest.mark.parametrize("path", PATHS)
def test_no_path_leads_to_a_file(client: TestClient, path: str) -> None:
    answer = client.get(path)
    refused(answer.status_code, answer.text)


def test_a_large_body_is_refused_before_it_is_read(client: TestClient) -> None:
    sent = 0

    def endless() -> Iterator[bytes]:
        nonlocal sent
        while sent < 50_000_000:
            sent += 100_000
            yield b" " * 100_000

    declared = client.post("/v1/search", content=b" " * 2_000_001)
    assert declared.status_code == 413
    undeclared = client.post("/v1/search", content=endless(), headers={"content-type": "application/json"})
    assert undeclared.status_code == 413
    assert undeclared.json()["code"] == "too_large"


def test_many_documents_are_refused(client: TestClient) -> None:
    for documents in (["a.pdf#1"] * 51, ["a.pdf#1"] * 100_000, [f"text {n}" for n in range(5)], []):
        answer = client.post("/v1/rerank", json={"query": QUERY, "documents": documents})
        refused(answer.status_code, answer.text)


def test_a_form_is_no_request(client: TestClient) -> None:
    body = b'{"query": "x"}'
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        answer = client.post("/v1/search", content=body, headers={"content-type": kind})
        refused(answer.status_code, answer.text)


def test_after_all_this_the_server_answers(client: TestClient) -> None:
    assert client.post("/v1/search", json={"query": QUERY, "k": 5}).status_code == 200


def test_a_failure_inside_shows_no_stack(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*given: object, **more: object) -> None:
        raise RuntimeError("secret of the inside")

    monkeypatch.setattr("ridgerank.serving.routes.search_answer", broken)
    answer = client.post("/v1/search", json={"query": QUERY, "k": 5})
    assert answer.status_code == 500
    assert answer.json()["code"] == "internal_error"
    assert "secret" not in answer.text
    assert "Traceback" not in answer.text


def refused(status: int, text: str) -> None:
    assert 400 <= status < 500, text[:300]
    told = json.loads(text)
    assert set(told) == {"message", "code", "fields"}
    assert told["message"]
    assert "Traceback" not in text
    assert len(text) < 10_000
