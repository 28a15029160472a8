"""Arrays made a part at a time, each kept as soon as it is there: a killed run loses one part at most."""

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ridgerank.atomic import replace_file

Arrays: TypeAlias = dict[str, NDArray[Any]]


def in_parts(
    folder: Path,
    count: int,
    size: int,
    make: Callable[[range], Arrays],
    *,
    done: Callable[[int], None] = lambda items: None,
) -> Arrays:
    """Arrays whose first axis runs over `count` items, `size` of them made at a time.

    Parts that lie in `folder` are read, the others made and kept. `done` hears of every item, either way.
    """
    parts = []
    for start in range(0, count, size):
        items = range(start, min(start + size, count))
        path = folder / f"{start:06d}.npz"
        if not path.exists():
            made = make(items)
            with replace_file(path) as scratch, scratch.open("wb") as file:
                np.savez(file, allow_pickle=False, **made)
        with np.load(path) as kept:
            parts.append(dict(kept))
        done(len(items))
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def complete(folder: Path, count: int, size: int) -> bool:
    """Whether all parts are there, so that no model is needed."""
    return all((folder / f"{start:06d}.npz").exists() for start in range(0, count, size))


def digest(texts: Iterable[str]) -> str:
    """A short name for what a stage was computed from: other queries are other folders."""
    whole = hashlib.blake2b(digest_size=6)
    for text in texts:
        whole.update(f"{len(text)} {text}".encode())
    return whole.hexdigest()
