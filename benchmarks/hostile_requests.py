"""Requests no honest caller sends, drawn by seed: each must be refused, and cost nobody else anything."""

import base64
import io
import json
import random
import socket
from dataclasses import dataclass

from PIL import Image

_PATHS = ("/v1/search", "/v1/rerank", "/v2/rerank", "/rerank", "/v1/score", "/v1/explain")


@dataclass(frozen=True, slots=True)
class HostileRequest:
    """A request that must be answered by a status from 400 to 499."""

    name: str
    method: str
    path: str
    content: bytes
    headers: dict[str, str]


def draw_request(rng: random.Random) -> HostileRequest:
    """One of many kinds."""
    name, content = rng.choice(_BODIES)(rng)
    headers = {"content-type": "application/json"}
    if rng.random() < 0.1:
        name, headers = "wrong type", {"content-type": rng.choice(["text/plain", "application/xml", ""])}
    if rng.random() < 0.1:
        path = rng.choice(
            [*(f"/v1/pages/{name}/image" for name in ("%2e%2e%2f" * 5 + "etc", "0" * 64)), "/v1", "/v1//x"]
        )
        return HostileRequest("path", "GET", path, b"", {"range": "bytes=0-,9-1", "if-none-match": "," * 900})
    if rng.random() < 0.05:
        return HostileRequest("host", "POST", "/v1/search", b"{}", {**headers, "host": "evil.example"})
    if rng.random() < 0.05:
        method = rng.choice(["DELETE", "PUT", "PATCH", "TRACE"])
        return HostileRequest("method", method, rng.choice(_PATHS), content, headers)
    return HostileRequest(name, "POST", rng.choice(_PATHS), content, headers)


def _noise(rng: random.Random) -> tuple[str, bytes]:
    return "noise", rng.randbytes(rng.randint(0, 2000))


def _cut(rng: random.Random) -> tuple[str, bytes]:
    whole = json.dumps({"query": "costs", "documents": ["a.pdf#1"], "k": 5}).encode()
    return "cut", whole[: rng.randint(0, len(whole) - 1)]


def _deep(rng: random.Random) -> tuple[str, bytes]:
    depth = rng.randint(1000, 50_000)
    return "deep", b'{"query": ' + b"[" * depth + b"]" * depth + b"}"


def _keys(rng: random.Random) -> tuple[str, bytes]:
    return "keys", json.dumps({f"key {number}": 0 for number in range(rng.randint(100, 30_000))}).encode()


def _values(rng: random.Random) -> tuple[str, bytes]:
    return "values", json.dumps({"query": "x", "documents": [{}] * rng.randint(1, 5000)}).encode()


def _rare(rng: random.Random) -> tuple[str, bytes]:
    letters = "".join(chr(rng.randint(0x4E00, 0x9FFF)) for _ in range(1900))
    return "rare", json.dumps({"query": letters, "k": 192}).encode()


def _extreme(rng: random.Random) -> tuple[str, bytes]:
    number = rng.choice(["1e999", "-1e999", "NaN", "9" * 400, "-0.0", "true", '"5"', "null", "[]", "1e400"])
    field = rng.choice(["k", "top_n", "deadline_ms", "min_score", "retriever_scores"])
    return "extreme", f'{{"query": [1], "{field}": {number}}}'.encode()


def _image(rng: random.Random) -> tuple[str, bytes]:
    encoded = io.BytesIO()
    size = rng.randint(8, 200), rng.randint(8, 200)
    noise = Image.frombytes("L", size, rng.randbytes(size[0] * size[1]))
    noise.convert("RGB").save(encoded, rng.choice(["PNG", "JPEG", "TIFF", "WEBP"]))
    data = bytearray(encoded.getvalue()[: rng.randint(20, 4000)])
    data[:4] = rng.randbytes(4)
    uri = f"data:image/{rng.choice(['png', 'jpeg', 'webp', 'tiff'])};base64,{base64.b64encode(data).decode()}"
    return "image", json.dumps({"query": "x", "documents": [{"image": uri}]}).encode()


def _scans(rng: random.Random) -> tuple[str, bytes]:
    encoded = io.BytesIO()
    Image.new("RGB", (2000, 2000)).save(encoded, "JPEG", progressive=True)
    data = encoded.getvalue()
    last = data.rindex(b"\xff\xda")
    data = data[:last] + data[last:-2] * rng.randint(100, 2000) + b"\xff\xd9"
    uri = f"data:image/jpeg;base64,{base64.b64encode(data).decode()}"
    return "scans", json.dumps({"query": "x", "documents": [{"image": uri}]}).encode()


def _names(rng: random.Random) -> tuple[str, bytes]:
    name = rng.choice(["../../etc/passwd#1", "a\0#1", "'; DROP#1", "http://169.254.169.254/", "#", "\ud800"])
    return "names", json.dumps({"query": "x", "documents": [name], "page": name}).encode()


_BODIES = (_noise, _cut, _deep, _keys, _values, _rare, _extreme, _image, _scans, _names)


def half_request(rng: random.Random, port: int) -> socket.socket:
    """A connection that has sent part of a request, or nothing, and is left open."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=10)
    head = b"POST /v1/search HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 16000000\r\n\r\n"
    connection.sendall(rng.choice([b"", head[: rng.randint(1, 60)], head + b"{" * rng.randint(0, 90_000)]))
    return connection
