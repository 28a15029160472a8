"""GGUF files converted once: transformers unpacks a GGUF file anew, and several times, for every process.

The converted model is a folder of safetensors in the user's cache (`cache_folder.py`), named after the file.
It has the numbers that transformers makes of the file, in float32. The folder is bounded: the models that
were not used for longest leave first. It may be removed at any time.
"""

import hashlib
import logging
import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ridgerank.cache_folder import cache_folder

logger = logging.getLogger(__name__)

KIND = "gguf"
MAX_BYTES = 20 * 10**9
"""What converted models may take on disk, together."""
_COMPLETE = "config.json"
_SAMPLE_BYTES = 1 << 20
_EXPANSION = 9
"""A file of four bits, and a little for steps, becomes float32."""


def converted_folder(file: Path) -> Path:
    """The folder for what this file is converted to: by its name, size, time and first and last megabyte."""
    status = file.stat()
    digest = hashlib.blake2b(f"{status.st_size} {status.st_mtime_ns}".encode(), digest_size=6)
    with file.open("rb") as opened:
        digest.update(opened.read(_SAMPLE_BYTES))
        opened.seek(max(0, status.st_size - _SAMPLE_BYTES))
        digest.update(opened.read(_SAMPLE_BYTES))
    return cache_folder(KIND) / f"{file.stem}-{digest.hexdigest()}"


def find_converted(file: Path) -> Path | None:
    """The folder this file was converted to before, None where it was not; using it keeps it."""
    folder = converted_folder(file)
    if not (folder / _COMPLETE).exists():
        return None
    with suppress(OSError):  # a cache that may only be read serves as well
        os.utime(folder)
    return folder


def keep_converted(file: Path, save: Callable[[Path], None], *, max_bytes: int = MAX_BYTES) -> None:
    """Let `save` write the converted model into a folder that later processes find; whole or not at all.

    Without room for it nothing is kept, and the log says so.
    """
    target = converted_folder(file)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if shutil.disk_usage(target.parent).free < _EXPANSION * file.stat().st_size:
            logger.warning("no room in %s to keep %s converted; it is unpacked again", target.parent, file)
            return
        scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
        try:
            save(scratch)
            with suppress(OSError):  # another process was faster
                scratch.rename(target)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        _evict(target, max_bytes)
    except OSError as error:
        logger.warning("%s is not kept converted (%s); it is unpacked again", file, error)


def _evict(newest: Path, max_bytes: int) -> None:
    """Remove the folders that were not used for longest until the others fit, the newest always staying."""
    folders = [path for path in newest.parent.iterdir() if path.is_dir() and path.name[0] != "."]
    folders.sort(key=lambda path: (path != newest, -path.stat().st_mtime_ns))
    total = 0
    for folder in folders:
        total += sum(file.stat().st_size for file in folder.iterdir())
        if total > max_bytes and folder != newest:
            shutil.rmtree(folder, ignore_errors=True)
