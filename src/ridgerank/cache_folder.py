"""Where files are kept that can be made again: the user's cache, or the folder RIDGERANK_CACHE names."""

import os
from pathlib import Path


def cache_folder(kind: str) -> Path:
    """The folder for files of this kind; it need not exist yet."""
    named = os.environ.get("RIDGERANK_CACHE")
    if named:
        return Path(named) / kind
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "ridgerank" / kind
