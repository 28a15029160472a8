"""Arrays computed a part at a time, each saved at once: a killed run loses one part at most."""

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ridgerank.atomic import replace_file

Arrays: TypeAlias = dict[str, NDArray[Any]]


def compute_in_parts(
    folder: Path,
    count: int,
    size: int,
    compute: Callable[[range], Arrays],
    *,
    done: Callable[[int], None] = lambda items: None,
) -> Arrays:
    """Arrays whose first axis runs over `count` items, `size` of them computed at a time.

    Parts that are in `folder` are read, the others computed and saved. `done` is called for every part.
    """
    parts = []
    for start in range(0, count, size):
        items = range(start, min(start + size, count))
        path = folder / f"{start:06d}.npz"
        if not path.exists():
            save_arrays(path, compute(items))
        with np.load(path) as saved:
            parts.append(dict(saved))
        done(len(items))
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def save_arrays(path: Path, arrays: Arrays) -> None:
    """Write a checkpoint whole or not at all."""
    with replace_file(path) as scratch, scratch.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)


def is_complete(folder: Path, count: int, size: int) -> bool:
    """Whether all parts are there, so that no model is needed."""
    return all((folder / f"{start:06d}.npz").exists() for start in range(0, count, size))


def short_digest(texts: Iterable[str]) -> str:
    """A short name for what a stage was computed from: other queries get another folder."""
    whole = hashlib.blake2b(digest_size=6)
    for text in texts:
        whole.update(f"{len(text)} {text}".encode())
    return whole.hexdigest()
