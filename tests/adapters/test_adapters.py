"""Claims about the adapters as a whole."""

import subprocess
import sys

SCRIPT = """
import importlib, sys
for package in ("haystack", "langchain_core", "llama_index", "rerankers", "mteb", "vidore_benchmark"):
    sys.modules[package] = None
from ridgerank.adapters.cross_encoder import PageCrossEncoder
from ridgerank.errors import ExtraMissing
for module, words in {
    "haystack": "haystack is not installed: pip install 'ridgerank[haystack]'",
    "langchain": "langchain_core is not installed: pip install 'ridgerank[langchain]'",
    "llamaindex": "llama_index is not installed: pip install 'ridgerank[llamaindex]'",
    "rerankers": "rerankers is not installed: pip install 'ridgerank[rerankers]'",
    "mteb": "mteb is not installed: pip install 'ridgerank[mteb]'",
    "vidore": "vidore-benchmark with its BasePipeline is not installed",
}.items():
    try:
        importlib.import_module(f"ridgerank.adapters.{module}")
    except ExtraMissing as error:
        assert words in str(error), str(error)
        assert isinstance(error, ImportError)
    else:
        raise AssertionError(module)
"""


def test_a_missing_package_is_named_with_its_extra_and_the_others_are_not_needed() -> None:
    subprocess.run([sys.executable, "-c", SCRIPT], check=True)
