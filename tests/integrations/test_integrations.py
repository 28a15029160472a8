"""Claims about the adapters as a whole."""

import subprocess
import sys

SCRIPT = """
import importlib, sys
for package in ("haystack", "langchain_core", "llama_index", "rerankers"):
    sys.modules[package] = None
from ridgerank.integrations.sentence_transformers import PageCrossEncoder
from ridgerank.errors import ExtraMissing
for module, words in {
    "haystack": "haystack is not installed: pip install 'ridgerank[haystack]'",
    "langchain": "langchain_core is not installed: pip install 'ridgerank[langchain]'",
    "llamaindex": "llama_index is not installed: pip install 'ridgerank[llamaindex]'",
    "rerankers": "rerankers is not installed: pip install 'ridgerank[rerankers]'",
}.items():
    try:
        importlib.import_module(f"ridgerank.integrations.{module}")
    except ExtraMissing as error:
        assert words in str(error), str(error)
        assert isinstance(error, ImportError)
    else:
        raise AssertionError(module)
"""


def test_a_missing_package_is_named_with_its_extra_and_the_others_are_not_needed() -> None:
    subprocess.run([sys.executable, "-c", SCRIPT], check=True)
