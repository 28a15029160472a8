"""Packages of extras: a module that lacks one fails with a line that says what to install."""

import sys
from collections.abc import Sequence
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.metadata import entry_points
from importlib.util import find_spec
from types import ModuleType

from ridgerank.errors import ExtraMissing

_EXTRAS = {
    "engine": "torch transformers tokenizers huggingface_hub lance pyarrow pypdfium2 PIL bm25s xxhash "
    "zstandard",
    "colpali": "peft",
    "dense": "sentence_transformers",
    "ocr": "rapidocr onnxruntime",
    "gguf": "gguf accelerate",
    "haystack": "haystack",
    "langchain": "langchain_core",
    "llamaindex": "llama_index",
    "rerankers": "rerankers",
    "vidore": "datasets",
    "serve": "fastapi uvicorn h11 prometheus_client",
    "plot": "matplotlib",
    "otel": "opentelemetry",
    "ray": "ray",
}
PACKAGES = {package: extra for extra, packages in _EXTRAS.items() for package in packages.split()}
"""Name of a package, as it is imported → the extra it comes with."""


def name_missing_extra(error: ModuleNotFoundError) -> ImportError:
    """The same failure, with the extra that has the package; the error itself for any other package."""
    package = (error.name or "").partition(".")[0]
    if package not in PACKAGES:
        return error
    return ExtraMissing(_advise([package]))


def require_packages(*packages: str) -> None:
    """Refuse to go on without packages, naming the extras of all that are missing at once."""
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        raise ExtraMissing(_advise(missing))


def name_missing_extras() -> None:
    """From now on modules of this package that lack one of an extra say so in one line."""
    if _ExtraFinder not in sys.meta_path:
        sys.meta_path.insert(0, _ExtraFinder)


def _advise(missing: Sequence[str]) -> str:
    verb = "is" if len(missing) == 1 else "are"
    extras = ",".join(dict.fromkeys(PACKAGES[package] for package in missing))
    return (
        f"{', '.join(missing)} {verb} not installed: pip install 'ridgerank[{extras}]', in a checkout "
        f"pip install '.[{extras}]' --constraint constraints.txt"
    )


@cache
def load_plugins() -> None:
    """Import what other packages announce under the entry points `ridgerank`, once.

    Such a module adds its families to the tables that this package looks names up in: `FAMILIES` of
    `backbones.load` and `retrievers.encoders`, `MODEL_CLASSES` of `backbones.text`, `RETRIEVERS` of
    `retrievers.load`.
    """
    for entry_point in entry_points(group="ridgerank"):
        entry_point.load()


class _ExtraFinder(PathFinder):
    """Finds the modules of this package as usual; `_ExtraLoader` loads them."""

    @classmethod
    def find_spec(
        cls, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = super().find_spec(fullname, path, target) if fullname.startswith("ridgerank.") else None
        if spec is not None and type(spec.loader) is SourceFileLoader:
            spec.loader = _ExtraLoader(spec.loader.name, spec.loader.path)
        return spec


class _ExtraLoader(SourceFileLoader):
    """Loads a module; a package of an extra that is missing is named with it."""

    def exec_module(self, module: ModuleType) -> None:
        try:
            super().exec_module(module)
        except ModuleNotFoundError as error:
            raise name_missing_extra(error) from None
