import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from PIL.Image import Image

from ridgerank.errors import RetrieverError
from ridgerank.retrievers.bm25 import BM25
from ridgerank.retrievers.encoders import MultiVectorEncoder
from ridgerank.retrievers.late_interaction import LateInteraction
from ridgerank.retrievers.load import load_retriever
from ridgerank.store.page_store import PageStore
from ridgerank.store.store_writer import StoreWriter
from tests.retrievers.small_encoders import Built
from tests.store.pages import LINEAGE, row


@pytest.fixture
def uri(tmp_path: Path) -> str:
    with StoreWriter(str(tmp_path / "store"), LINEAGE) as writer:
        writer.append([row(number) for number in range(3)])
    return str(tmp_path / "store")


@pytest.fixture
def store(uri: str) -> Iterator[PageStore]:
    with PageStore.open(uri) as opened:
        yield opened


def test_without_a_name_it_is_the_one_whose_vectors_are_stored_else_bm25(
    uri: str, encoder: MultiVectorEncoder, pages: list[Image]
) -> None:
    with PageStore.open(uri) as store:
        assert isinstance(load_retriever(None, store), BM25)
    with StoreWriter(uri, LINEAGE) as writer:
        lacking = sorted(writer.open_vectors(encoder.origin))
        writer.set_vectors(dict(zip(lacking, encoder.embed_pages(pages), strict=True)))
    with PageStore.open(uri) as store:
        retriever = load_retriever(None, store, device="cpu")
        assert isinstance(retriever, LateInteraction)
        assert retriever.name == encoder.name
        assert len(retriever.search("revenue", 2)) == 2
        assert isinstance(load_retriever("bm25", store), BM25)


def test_a_retriever_that_has_moved_is_asked_for_by_its_new_name(
    uri: str, encoder: MultiVectorEncoder, colqwen: Built, pages: list[Image]
) -> None:
    with StoreWriter(uri, LINEAGE) as writer:
        lacking = sorted(writer.open_vectors(replace(encoder.origin, source="/gone/colqwen")))
        writer.set_vectors(dict(zip(lacking, encoder.embed_pages(pages), strict=True)))
    with PageStore.open(uri) as store:
        with pytest.raises(
            RetrieverError, match=r"holds vectors of /gone/colqwen.*as it is called now, or bm25"
        ):
            load_retriever(None, store, device="cpu")
        assert load_retriever(str(colqwen.folder), store, device="cpu").search("revenue", 1)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("colbert" * 500, "no retriever called 'colbert.*known: bm25"),
        ("colbert" * 500 + "+bm25", "no retriever called 'colbert.*known: bm25"),
        ("dense:" + "colbert" * 500, "cannot load 'colbert"),
    ],
)
def test_unknown_names_list_those_known(store: PageStore, name: str, reason: str) -> None:
    with pytest.raises(RetrieverError, match=reason):
        load_retriever(name, store)


def test_a_retriever_of_another_package_is_found_by_its_name(uri: str, tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/retrievers.md").read_text()
    section = page[page.index("## Another retriever") :]
    [project] = re.findall(r"```toml\n(.*?)```", section, flags=re.S)
    module = re.findall(r"```python\n(.*?)```", section, flags=re.S)[-1]
    [(name, target)] = tomllib.loads(project)["project"]["entry-points"]["ridgerank"].items()
    (tmp_path / f"{target}.py").write_text(module)
    (tmp_path / f"{target}-1.0.dist-info").mkdir()
    (tmp_path / f"{target}-1.0.dist-info/entry_points.txt").write_text(f"[ridgerank]\n{name} = {target}\n")
    script = """
import sys
sys.path.insert(0, sys.argv[2])
from ridgerank.retrievers.load import load_retriever
from ridgerank.store.page_store import PageStore
with PageStore.open(sys.argv[1]) as store:
    assert len(load_retriever("briefest", store).search("text", 2)) == 2
"""
    subprocess.run([sys.executable, "-c", script, uri, str(tmp_path)], check=True)


def test_bm25_and_given_candidates_work_without_torch(uri: str) -> None:
    script = """
import sys
sys.modules["torch"] = sys.modules["transformers"] = None
from ridgerank.retrievers.base import GivenCandidates
from ridgerank.retrievers.load import load_retriever
from ridgerank.store.page_store import PageStore
from ridgerank.trec import Run
with PageStore.open(sys.argv[1]) as store:
    assert len(load_retriever(None, store).search("text", 2)) == 2
    run = Run.of_dict({"cats": {"report.pdf#1": 1.0}})
    GivenCandidates(run, resolve=store.find).search("cats", 1)
"""
    subprocess.run([sys.executable, "-c", script, uri], check=True)
