"""The snippets of docs/adapters.md run as they stand there, and a missing package is named."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from ridgerank.reranker.reranker import Reranker
from tests.integrations.conftest import png, scan

TEXT = (Path(__file__).parents[2] / "docs/adapters.md").read_text()
SECTIONS = {
    title: "".join(re.findall(r"```python\n(.*?)```", body, flags=re.S))
    for title, body in re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", TEXT, flags=re.S | re.M)
}
NEEDED = {
    "CrossEncoder": "sentence_transformers",
    "rerankers": "rerankers",
    "LangChain": "langchain_core",
    "LlamaIndex": "llama_index",
    "Haystack": "haystack",
    "Search engines": "PIL",
    "Qdrant by LangChain": "langchain_qdrant",
    "Qdrant by LlamaIndex": "llama_index.vector_stores.qdrant",
    "MTEB": "mteb",
}

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


def test_every_adapter_has_its_snippet() -> None:
    assert [*SECTIONS] == [*NEEDED]
    for module in (Path(__file__).parents[2] / "src/ridgerank/integrations").glob("[!_]*.py"):
        assert module.stem == "matching" or f"from ridgerank.integrations.{module.stem} import" in TEXT


@pytest.mark.filterwarnings("ignore:Payload indexes have no effect")  # Qdrant's local mode
@pytest.mark.parametrize("section", NEEDED)
def test_a_snippet_runs(
    section: str, reranker: Reranker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(NEEDED[section], reason=f"{NEEDED[section]} is not installed")
    (tmp_path / "new.png").write_bytes(png(scan("a page in no store")))
    monkeypatch.chdir(tmp_path)
    exec(SECTIONS[section], {"reranker": reranker, "query": "operating margin in 2019"})


def test_the_first_snippet_opens_a_store(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    opening = re.search(r"```python\n(.*?)```", TEXT, flags=re.S)
    assert opening is not None
    monkeypatch.chdir(Path(uri).parent)
    names: dict[str, object] = {}
    exec(opening[1], names)
    opened = names["reranker"]
    assert isinstance(opened, Reranker)
    opened.close()


def test_a_missing_package_is_named_with_its_extra_and_the_others_are_not_needed() -> None:
    subprocess.run([sys.executable, "-c", SCRIPT], check=True)
