"""The limits of a server and who may call it. Knows no HTTP."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

from ridgerank.errors import ServingError
from ridgerank.worker_process import usable_cores

MIN_KEY_CHARACTERS = 16
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
Dialect: TypeAlias = Literal["ridgerank", "vllm", "tei", "infinity"]
"""Whose answers are given where other servers contradict each other; the first has fields of all."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one request, and all requests together, may take: these bound the memory of a server."""

    admitted: int = 16
    """Requests waiting or being worked on; more are refused (429)."""
    batch_jobs: int = 8
    """Jobs a worker takes at once: requests, or the queries of a score request."""
    body_bytes: int = 16 << 20
    candidates: int = 200
    """Documents per rerank request, or pages per search."""
    query_tokens: int = 2048
    """Tokens the model runs for one page: those of the query and of what the prompt has behind the page."""
    pair_tokens: int = 131_072
    """The same summed over all pages of all queries of a request."""
    images: int = 32
    """Documents per request that are no stored page."""
    image_pixels: int = 25_000_000
    decode_seconds: float = 10.0
    """Time to decode all images of one request."""
    deadline_seconds: float = 30.0
    image_cache_bytes: int = 64 << 20
    """Rendered pages kept in memory."""
    waiting_renders: int = 32
    """Pages waiting to be rendered; more are refused (429)."""
    render_seconds: float = 15.0
    """Time to find and draw one page of an indexed document."""
    connections: int = 512
    """Open connections. Beyond it one that sends nothing, or nothing whole, is closed for a new one."""
    header_seconds: float = 10.0
    """Time for the head of a request, from the opening of the connection or the first byte."""
    header_bytes: int = 64 << 10
    """The head of a request."""
    body_seconds: float = 30.0
    """Time for a body."""
    small_body_bytes: int = 64 << 10
    """A body up to this size is always received; larger ones share the memory of `large_bodies`."""
    large_bodies: int = 8
    """Bodies of the greatest size whose memory all bodies that are being received may take; then 429."""
    send_seconds: float = 60.0
    """Time for a caller to take each part of an answer."""
    json_marks: int = 400_000
    """Commas, colons and opening brackets of a body: the longer it takes to parse."""
    json_keys: int = 10_000
    """Keys of all JSON objects of a body: each unknown one is an error to be told."""


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """How a server is run."""

    limits: Limits = field(default_factory=Limits)
    keys: tuple[str, ...] = ()
    """API keys, any of which is accepted; without keys anyone may call."""
    hosts: frozenset[str] | None = LOOPBACK
    """Host names a request may use; None for any. A website can make a browser call a loopback server under
    the website's own name: this stops it."""
    encode_missing: bool = False
    """Whether texts and images that are not stored are encoded on the fly."""
    workers: int | None = None
    """Threads that run the model, or wait for processes that do; None for as many as suit the device."""
    processes: bool | None = None
    """Whether each worker is a process with a model of its own; None for what suits device and model."""
    dialect: Dialect = "ridgerank"
    model_name: str | None = None
    """The name the model is served under; None for one made from the backbone's."""
    tracing: bool = False
    """Whether requests become OpenTelemetry spans, sent where `OTEL_EXPORTER_OTLP_ENDPOINT` says."""
    judge: bool = False
    """Whether callers may judge pages; judgements are kept beside the store."""
    traffic_log: Path | None = None
    """A file to keep queries, candidates and scores in, to calibrate on later; None keeps nothing."""
    traffic_bytes: int = 32 << 20
    """What that file and its predecessor may have together."""


def read_keys(path: Path) -> tuple[str, ...]:
    """Read API keys from a file, one per line; blank lines and lines that start with # are skipped."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ServingError(f"{path}: cannot be read ({error}); wanted a text file, one key a line") from error
    keys = tuple(line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#"))
    if not keys:
        raise ServingError(f"{path}: no keys; wanted at least one line")
    short = [key for key in keys if len(key) < MIN_KEY_CHARACTERS]
    if short:
        raise ServingError(
            f"{path}: {len(short)} of {len(keys)} keys are shorter than {MIN_KEY_CHARACTERS} characters; "
            "make longer ones, such as `openssl rand -hex 32` does"
        )
    if any(not key.isascii() or not key.isprintable() or " " in key for key in keys):
        raise ServingError(f"{path}: a key with white space or other than ASCII; a header cannot carry it")
    return keys


def default_workers(device: str) -> int:
    """One on an accelerator; two on a CPU, because one caller alone leaves cores idle."""
    return 1 if device != "cpu" else min(2, usable_cores())


def default_processes(device: str, workers: int, model_bytes: int) -> bool:
    """Whether workers are processes: several on a CPU whose models take a tenth of the memory at most."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return device == "cpu" and workers > 1 and workers * model_bytes <= memory // 10
