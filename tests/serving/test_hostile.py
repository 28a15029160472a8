"""What the server must refuse, each with a 4xx in its own shape; bodies that do not arrive or are large."""

import asyncio
import base64
import json
import socket
import zlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from importlib.resources import files

import pytest
from fastapi.testclient import TestClient
from starlette.types import Message

from ridgerank.serving.http_errors import BodyRefused
from ridgerank.serving.middleware import BodyReceiver
from ridgerank.serving.settings import Limits
from tests.documents.sample_files import png_bomb
from tests.serving.conftest import SECONDS, MakeService, client_of, serve

QUERY = "costs"


@pytest.fixture
def client(make_service: MakeService) -> Iterator[TestClient]:
    limits = Limits(
        body_bytes=2_000_000, candidates=50, images=4, image_pixels=1_000_000, deadline_seconds=SECONDS
    )
    with client_of(make_service(limits=limits)) as opened:
        yield opened


def uri(data: bytes, kind: str = "png") -> str:
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


ZIP_BOMB = b"Comment\0\0" + zlib.compress(bytes(100_000_000), 9)

DOCUMENTS = {
    "traversal": "../../../../etc/passwd#1",
    "null byte": {"page": "report.pdf\0#1"},
    "file address": {"image": "file:///etc/passwd"},
    "address in parts": {"content": [{"type": "image_url", "image_url": {"url": "http://127.0.0.1:22/"}}]},
    "data that is no image": {"image": "data:text/html;base64,PGI+"},
    "svg, which may hold addresses": {"image": uri(b"<svg xmlns='http://www.w3.org/2000/svg'/>", "svg+xml")},
    "a broken image": {"image": uri(png_bomb(100)[:60])},
    "an image bomb": {"image": uri(png_bomb(60_000))},
    "an image beyond the limit": {"image": uri(png_bomb(1001))},
    "a zip bomb in an image": {"image": uri(png_bomb(64, text=ZIP_BOMB))},
    "a PostScript program": {"image": uri(b"%!PS-Adobe-3.0\n(x) show", "png")},
    "a text beyond the limit": "x" * 30_000,
    "a blank text": "  \n ",
    "an unknown field": {"page": "a.pdf#1", "path": "/etc/passwd"},
    "two images in one": {"content": [{"type": "image_url", "image_url": {"url": uri(png_bomb(9))}}] * 2},
    "a source outside the store": {"source": "../../../etc/passwd", "page": 1},
    "a lone surrogate": "\ud800 text",
}


@pytest.mark.parametrize("document", DOCUMENTS.values(), ids=DOCUMENTS.keys())
def test_hostile_documents_are_refused(client: TestClient, document: object) -> None:
    sent = {"query": QUERY, "documents": [document], "retriever_scores": [1.0], "on_missing": "error"}
    body = json.dumps(sent)
    answer = client.post("/v1/rerank", content=body, headers={"content-type": "application/json"})
    refused(answer.status_code, answer.text)


BODIES = {
    "not JSON": b"{",
    "deep": b"[" * 100_000 + b"]" * 100_000,
    "a huge number": b'{"query": "x", "k": ' + b"9" * 5000 + b"}",
    "not UTF-8": b'{"query": "\xff\xfe"}',
    "NaN": b'{"query": "x", "documents": ["a.pdf#1"], "retriever_scores": [NaN]}',
    "k beyond the server's limit": b'{"query": "x", "k": 51}',
    "a blank query": b'{"query": "   "}',
    "a lone surrogate": b'{"query": "\\ud800"}',
}


@pytest.mark.parametrize("path", ["/v1/search", "/v2/rerank", "/v1/score", "/v1/explain"])
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
def test_hostile_bodies_are_refused(client: TestClient, path: str, body: bytes) -> None:
    answer = client.post(path, content=body, headers={"content-type": "application/json"})
    refused(answer.status_code, answer.text)


PATHS = [
    "/v1/pages/../../../etc/passwd/image",
    "/v1/pages/%2e%2e%2f%2e%2e/thumbnail",
    f"/v1/pages/{'A' * 64}/image",
    f"/v1/pages/{'0' * 64}/image",
    f"/v1/pages/{'0' * 64}%00/image",
    f"/v1/pages/{'0' * 60_000}/thumbnail",
    *("/page/", "/page/../page.py", "/page/%2e%2e/page.py", "/page/..%2fpage.py"),
    "/..%2fapp.py",
    "/static/../../etc/passwd",
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
    for documents in (["a.pdf#1"] * 51, ["a.pdf#1"] * 100_000, [uri(png_bomb(9))] * 5, []):
        answer = client.post("/v1/rerank", json={"query": QUERY, "documents": documents})
        refused(answer.status_code, answer.text)


@pytest.mark.parametrize("path", ["/v1/search", "/v1/judgements"])
def test_another_website_cannot_make_a_browser_send_a_request(client: TestClient, path: str) -> None:
    body = (
        {"query": QUERY, "page": "report.pdf#1", "grade": 2} if path == "/v1/judgements" else {"query": QUERY}
    )
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""):
        answer = client.post(path, content=json.dumps(body), headers={"content-type": kind})
        assert (answer.status_code, answer.json()["code"]) == (415, "not_json")
    for site in ({}, {"sec-fetch-site": "cross-site"}, {"sec-fetch-site": "same-site"}):
        answer = client.post(path, json=body, headers={"origin": "https://evil.example", **site})
        assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
    # Behind a proxy the browser's own word counts, because the proxy may have changed the host.
    for headers in (
        {"origin": "http://127.0.0.1"},
        {"origin": "https://pages.example.org", "sec-fetch-site": "same-origin"},
    ):
        answer = client.post(path, json=body, headers=headers)
        assert answer.status_code == (200 if path == "/v1/search" else 409), answer.text


def test_a_head_beyond_the_limit_is_refused_however_it_arrives(make_service: MakeService) -> None:
    with (
        serve(make_service()) as address,
        socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])), timeout=SECONDS) as line,
    ):
        line.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Long: " + b"x" * 100_000 + b"\r\n\r\n")
        assert line.recv(100).split()[1] in (b"400", b"431")


def test_after_all_this_the_server_answers(client: TestClient) -> None:
    assert client.post("/v1/search", json={"query": QUERY, "k": 5}).status_code == 200


def test_a_failure_inside_shows_no_stack(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*given: object, **more: object) -> None:
        raise RuntimeError("secret of the inside")

    monkeypatch.setattr("ridgerank.serving.app.search_answer", broken)
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


FOLDER = files("ridgerank.serving") / "static"
TEXTS = {entry.name: entry.read_text(encoding="utf-8") for entry in FOLDER.iterdir()}
MARKUP = TEXTS["index.html"]


def test_each_file_is_served_as_what_it_is_and_without_a_key(make_service: MakeService) -> None:
    kinds = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
    with client_of(make_service(keys={"k" * 32: None})) as client:
        for name, text in TEXTS.items():
            answer = client.get("/" if name == "index.html" else f"/page/{name}")
            assert answer.status_code == 200
            assert answer.headers["content-type"].startswith(kinds[name.rpartition(".")[2]])
            assert answer.text == text
        assert client.get("/docs").status_code == 200
        assert client.get("/v1/store").status_code == 401


def test_the_policy_allows_neither_inline_script_nor_anything_from_elsewhere(client: TestClient) -> None:
    policy = dict(
        rule.split(" ", 1) for rule in client.get("/").headers["content-security-policy"].split("; ")
    )
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert "unsafe" not in " ".join(policy.values())


LIMITS = Limits(body_bytes=1000, small_body_bytes=100, large_bodies=2, body_seconds=0.05)


def sender(parts: Sequence[bytes], *, whole: bool = True) -> Callable[[], Awaitable[Message]]:
    """A caller who sends these parts, and then nothing more unless the body is whole."""
    remaining = list(parts)

    async def receive() -> Message:
        if not remaining:
            await asyncio.Event().wait()
        part = remaining.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(remaining) or not whole}

    return receive


def receive_body(limits: Limits, parts: Sequence[bytes], *, whole: bool = True) -> Message:
    async def once() -> Message:
        return await BodyReceiver(limits).bounded(sender(parts, whole=whole))()

    return asyncio.run(once())


@pytest.mark.parametrize(
    ("parts", "whole", "status", "code"),
    [([b"{"], False, 408, "body_late"), ([b"x" * 600, b"x" * 600], True, 413, "too_large")],
)
def test_a_body_that_is_late_or_too_large_is_refused(
    parts: list[bytes], whole: bool, status: int, code: str
) -> None:
    with pytest.raises(BodyRefused) as refused:
        receive_body(LIMITS, parts, whole=whole)
    assert (refused.value.status_code, refused.value.code) == (status, code)
    assert receive_body(LIMITS, [b"a", b"", b"bc"])["body"] == b"abc"


def test_half_sent_bodies_keep_no_small_one_out_and_large_ones_only_while_they_arrive() -> None:
    limits = Limits(body_bytes=1000, small_body_bytes=100, large_bodies=2, body_seconds=60)

    async def crowd() -> None:
        bodies = BodyReceiver(limits)
        half = [asyncio.ensure_future(bodies.bounded(sender([b"x" * 900], whole=False))()) for _ in range(2)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert (await bodies.bounded(sender([b"x" * 100]))())["body"] == b"x" * 100
        with pytest.raises(BodyRefused) as refused:
            await bodies.bounded(sender([b"x" * 600]))()
        assert refused.value.status_code == 429
        for task in half:
            task.cancel()
        await asyncio.gather(*half, return_exceptions=True)
        assert len((await bodies.bounded(sender([b"x" * 600]))())["body"]) == 600

    asyncio.run(crowd())
