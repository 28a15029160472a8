"""The limits of a server and who may call it. Knows no HTTP."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

from ridgerank.errors import ServingError

MIN_KEY_CHARACTERS = 16
UNNAMED = "default"
"""The name of a store that is served alone."""
STORE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
SHARED_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""The variable that prometheus-client reads when it is imported: where worker processes share metrics."""
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
Dialect: TypeAlias = Literal["ridgerank", "vllm", "tei"]
"""Whose answers are given if other servers contradict each other; the first has the fields of all."""
OnOverload: TypeAlias = Literal["error", "retriever"]
"""An error, or the order of the retriever or of the scores that were sent."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one request, and all requests together, may take: docs/security.md says what happens beyond."""

    admitted: int = 16
    """Requests that wait for the model or are worked on."""
    waiting: int = 256
    """Requests to rank, those that get the retriever's order included."""
    batch_jobs: int = 8
    body_bytes: int = 16 << 20
    candidates: int = 200
    """Documents per rerank request, or pages per search."""
    query_tokens: int = 2048
    """Tokens the model runs for one page: those of the query and of the prompt after the page."""
    pair_tokens: int = 131_072
    """The same summed over all pages of all queries of a request."""
    images: int = 32
    """Documents per request that are not stored pages."""
    image_pixels: int = 25_000_000
    decode_seconds: float = 10.0
    deadline_seconds: float = 30.0
    image_cache_bytes: int = 64 << 20
    waiting_renders: int = 32
    render_seconds: float = 15.0
    header_bytes: int = 64 << 10
    body_seconds: float = 30.0
    small_body_bytes: int = 64 << 10
    """A body up to this size is always received; larger ones share the memory of `large_bodies`."""
    large_bodies: int = 8
    send_seconds: float = 60.0


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """How a server is run."""

    limits: Limits = field(default_factory=Limits)
    keys: Mapping[str, frozenset[str] | None] = field(default_factory=dict)
    """API key → the stores it may use, None for all; without keys anyone may call."""
    hosts: frozenset[str] | None = LOOPBACK
    """Host names a request may use; None for any. A website can make a browser call a loopback server under
    the website's own name: this stops it."""
    scores_from: str | None = None
    """The retriever whose scores requests bring if they name none."""
    encode_missing: bool = True
    """Whether texts and images that are not stored are encoded on the fly."""
    dialect: Dialect = "ridgerank"
    on_overload: OnOverload = "error"
    """What a request gets that the model cannot answer in time, unless it says so itself."""
    model_name: str | None = None
    """None for one made from the backbone's."""
    judge: bool = False
    query_log: Path | None = None
    """A file to keep the texts of queries in, for `calibrate --queries`."""
    json_logs: bool = False


def read_keys(path: Path, stores: Collection[str]) -> dict[str, frozenset[str] | None]:
    """Read API keys from a file: on each line a key, then the stores it is limited to, if any.

    Blank lines and lines that start with # are skipped. `stores` are those that are served.
    """
    try:
        lines = [line.split() for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise ServingError(
            f"{path}: cannot be read ({error}); expected a text file with one key per line"
        ) from error
    keys = {key: frozenset(names) or None for key, *names in filter(None, lines) if key[0] != "#"}
    if not keys:
        raise ServingError(f"{path}: no keys; expected at least one line")
    short = [key for key in keys if len(key) < MIN_KEY_CHARACTERS]
    if short:
        raise ServingError(
            f"{path}: {len(short)} of {len(keys)} keys are shorter than {MIN_KEY_CHARACTERS} characters; "
            "make longer ones, such as `openssl rand -hex 32` does"
        )
    if any(not key.isascii() or not key.isprintable() for key in keys):
        raise ServingError(f"{path}: a key with characters other than ASCII; a header cannot carry it")
    unknown = set().union(*(names for names in keys.values() if names)).difference(stores)
    if unknown:
        raise ServingError(
            f"{path}: a key is limited to {', '.join(sorted(unknown))}, and the stores that are served are "
            f"{', '.join(stores)}; write a key and the names of its stores, with spaces between"
        )
    return keys
