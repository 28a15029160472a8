"""Safetensors files with a digest of everything they hold: a changed bit is noticed when they are read.

A file of an older release has no digest and is read as it is. That a digest was there cannot be lost to a
changed bit: a file with metadata of any other name is refused.
"""

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgerank.atomic import replace_file
from ridgerank.errors import ArtifactError
from ridgerank.store.check import Damage

DIGEST_KEY = "digest"
_METADATA_NAMES = {"list_names", "format", "lineage", "fit", "facts", DIGEST_KEY}


def write_sealed(path: Path, tensors: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]) -> None:
    """Write the file whole or not at all, its digest among the metadata."""
    from safetensors.numpy import save

    sealed = {**metadata, DIGEST_KEY: _digest(tensors, metadata)}
    with replace_file(path) as scratch:
        scratch.write_bytes(save(dict(tensors), sealed))


def read_sealed(path: Path) -> tuple[dict[str, str], dict[str, NDArray[Any]]]:
    """The metadata and the tensors; a file that is not as it was written is refused."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            metadata: dict[str, str] = dict(file.metadata() or {})
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
    except (SafetensorError, OSError, ValueError, TypeError, AttributeError) as error:
        raise ArtifactError(f"{path}: not a readable calibration ({error}); calibrate again") from error
    unknown = sorted(metadata.keys() - _METADATA_NAMES)
    digest = metadata.pop(DIGEST_KEY, None)
    if unknown or (digest is not None and digest != _digest(tensors, metadata)):
        raise ArtifactError(f"{path} is damaged: it is not as it was written; calibrate again")
    return metadata, tensors


def find_damaged_calibrations(folder: Path) -> Iterator[Damage]:
    """Every calibration of a folder that cannot be read, or is not as it was written."""
    from ridgerank.calibration.artifact import Calibration, list_calibrations

    for name in list_calibrations(folder):
        try:
            Calibration.load(folder, name)
        except ArtifactError as error:
            yield Damage(f"calibration {name}", None, str(error))


def _digest(tensors: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]) -> str:
    """BLAKE2b-256 of all names and values, each preceded by its length."""
    digest = hashlib.blake2b(digest_size=32)
    parts: list[bytes] = [text.encode() for item in sorted(metadata.items()) for text in item]
    for name, tensor in sorted(tensors.items()):
        header = f"{name} {tensor.dtype.str} {tensor.shape}"
        parts += [header.encode(), np.ascontiguousarray(tensor).tobytes()]
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()
