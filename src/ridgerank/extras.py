"""Packages that come with an extra, and the line that names it where one is missing.

A plain `pip install ridgerank` has what fusion, the readout and the measures need. Everything else imports
packages of an extra at the top of its module. `name_missing_extras` makes the import of such a module fail
with one line that says what to install.
"""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import find_spec
from types import ModuleType

from ridgerank.errors import ExtraMissing

PACKAGES = {
    "torch": "engine",
    "transformers": "engine",
    "tokenizers": "engine",
    "huggingface_hub": "engine",
    "lance": "engine",
    "pyarrow": "engine",
    "pypdfium2": "engine",
    "PIL": "engine",
    "bm25s": "engine",
    "xxhash": "engine",
    "zstandard": "engine",
    "peft": "colpali",
    "sentence_transformers": "dense",
    "rapidocr": "ocr",
    "onnxruntime": "ocr",
    "gguf": "gguf",
    "accelerate": "gguf",
    "haystack": "haystack",
    "langchain_core": "langchain",
    "llama_index": "llamaindex",
    "rerankers": "rerankers",
    "datasets": "vidore",
    "fastapi": "serve",
    "uvicorn": "serve",
    "h11": "serve",
    "prometheus_client": "serve",
    "matplotlib": "plot",
    "opentelemetry": "otel",
    "ray": "ray",
}
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
    if not any(isinstance(finder, _ExtraFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _ExtraFinder())


def _advise(missing: Sequence[str]) -> str:
    verb = "is" if len(missing) == 1 else "are"
    extras = ",".join(dict.fromkeys(PACKAGES[package] for package in missing))
    return f"{', '.join(missing)} {verb} not installed: pip install 'ridgerank[{extras}]'"


class _ExtraFinder(MetaPathFinder):
    """Finds the modules of this package as usual; `_ExtraLoader` loads them."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith("ridgerank."):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
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
