"""What a server allows and whom it lets in. Knows no HTTP."""

import os
from dataclasses import dataclass, field
from pathlib import Path

from ridgerank.errors import RidgeRankError

MIN_KEY_CHARACTERS = 16
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


class ServingError(RidgeRankError):
    """A server that cannot be started as asked."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one request, and all of them together, may ask of a server: memory is bounded by these."""

    admitted: int = 16
    """Requests waiting or being worked on; the next one is told to come back (429)."""
    together: int = 8
    """Requests a worker takes at once."""
    body_bytes: int = 16 << 20
    candidates: int = 200
    """Documents of a rerank request, or pages of a search."""
    images: int = 32
    """Of the documents, those that are no stored page."""
    image_pixels: int = 25_000_000
    deadline_seconds: float = 30.0
    picture_bytes: int = 64 << 20
    """Rendered pages kept in memory."""
    pictures_waiting: int = 32
    """Pages waiting to be rendered; the next one is told to come back."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How a server is run."""

    limits: Limits = field(default_factory=Limits)
    keys: tuple[str, ...] = ()
    """API keys, any of which opens; none leaves the server open."""
    hosts: frozenset[str] | None = LOOPBACK
    """Names a request may call the server by; None for any. A page elsewhere on the web can make a browser
    call a loopback server under its own name: this is what stops it."""
    encode_missing: bool = False
    """Whether texts and images that are not stored are encoded on the fly."""
    workers: int = 1
    """Threads that run the model, or wait for processes that do."""


def read_keys(path: Path) -> tuple[str, ...]:
    """API keys from a file: one a line, blank lines and those that open with # left out."""
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
    """One for a device of its own; on a CPU two share the cores: one caller alone leaves some idle."""
    return 1 if device != "cpu" else min(2, len(os.sched_getaffinity(0)))


def default_processes(device: str, workers: int, model_bytes: int) -> bool:
    """Whether workers are processes: on a CPU, if their models take no more than a tenth of the memory."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return device == "cpu" and workers > 1 and workers * model_bytes <= memory // 10
