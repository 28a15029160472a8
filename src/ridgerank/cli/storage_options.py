"""Options of commands that read a store which may lie far away."""

import re
from pathlib import Path
from typing import Annotated

import typer

CacheDir = Annotated[
    Path | None,
    typer.Option(help="Keep prefixes read from an object store in this folder.", show_default=False),
]
CacheSize = Annotated[str, typer.Option(help="Most that folder may hold, as 500MB or 20GB.")]
_UNITS = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


def parse_size(text: str) -> int:
    """Bytes of a size as people write it."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]B)", text.strip().upper())
    if found is None:
        raise typer.BadParameter(f"{text!r}, wanted a number and KB, MB, GB or TB", param_hint="--cache-size")
    return int(float(found[1]) * _UNITS[found[2]])
