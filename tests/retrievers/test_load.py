import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL.Image import Image

from ridgerank.errors import RetrieverError
from ridgerank.ragged import Floats
from ridgerank.records import Candidate, Query
from ridgerank.retrievers.base import GivenCandidates, HybridRetriever, Retriever, top_candidates
from ridgerank.retrievers.bm25 import BM25
from ridgerank.retrievers.encoders import MultiVectorEncoder
from ridgerank.retrievers.late_interaction import LateInteraction
from ridgerank.retrievers.load import load_retriever
from ridgerank.store.page_filter import PageSelection
from ridgerank.store.page_store import PageStore
from ridgerank.store.store_writer import StoreWriter
from ridgerank.trec import Run, read_run
from tests.retrievers.small_encoders import Built
from tests.retrievers.test_bm25 import TEXTS, store_of
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
    [module] = re.findall(r"```python\n(import numpy.*?)```", section, flags=re.S)
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


class Table(Retriever):
    """Scores by page, whatever the query."""

    def __init__(self, name: str, scores: dict[str, float]) -> None:
        self.name = name
        self._scores = scores

    def search_many(self, queries: Sequence[str], k: int) -> list[list[Candidate]]:
        return [top_candidates(list(self._scores), np.array(list(self._scores.values())), k) for _ in queries]

    def score(self, query: str, page_ids: Sequence[str]) -> Floats:
        return np.array([self._scores[page_id] for page_id in page_ids])


LOOK = Table("look", {"a": 3.0, "b": 2.0, "c": 1.0, "d": 0.0})
WORDS = Table("words", {"a": 0.0, "b": 200.0, "c": 100.0, "d": 300.0})


def test_a_page_is_scored_by_all_members_on_one_scale() -> None:
    together = HybridRetriever([LOOK, WORDS])
    pages = ["a", "b", "c", "d"]
    standardized = [
        (scores - scores.mean()) / scores.std() for scores in (LOOK.score("", pages), WORDS.score("", pages))
    ]
    np.testing.assert_allclose(together.score("q", pages), np.mean(standardized, axis=0))
    assert together.name == "look+words"


def test_candidates_of_any_member_are_candidates() -> None:
    [candidates] = HybridRetriever([LOOK, WORDS]).search_many(["q"], 1)
    assert [candidate.page_id for candidate in candidates] == ["a"]  # a and d are compared, and tie
    best = HybridRetriever([LOOK, WORDS]).search("q", 2)
    assert best[0].page_id == "b"
    assert best[0].score > best[1].score


def test_a_filter_holds_for_every_member() -> None:
    [candidates] = HybridRetriever([LOOK, WORDS]).search_within(["q"], 2, PageSelection(frozenset("bc"), ""))
    assert {candidate.page_id for candidate in candidates} == {"b", "c"}


def test_names_that_cannot_be_joined_are_refused(tmp_path: Path) -> None:
    with store_of(str(tmp_path / "store"), TEXTS) as store:
        for name in ("bm25+bm25", "bm25+"):
            with pytest.raises(RetrieverError, match="expected different retrievers joined by"):
                load_retriever(name, store)
        with pytest.raises(RetrieverError, match="holds no vectors"):
            load_retriever("stored+bm25", store)
        with pytest.raises(RetrieverError, match="without a model"):
            load_retriever("dense:", store)


def test_late_interaction_and_words_of_one_store_are_searched_together(
    tmp_path: Path, encoder: MultiVectorEncoder, pages: list[Image]
) -> None:
    uri = str(tmp_path / "store")
    store_of(uri, TEXTS[: len(pages)]).close()
    with StoreWriter(uri, LINEAGE) as writer:
        lacking = sorted(writer.open_vectors(encoder.origin))
        writer.set_vectors(dict(zip(lacking, encoder.embed_pages(pages), strict=True)))
    with PageStore.open(uri) as store:
        hybrid = load_retriever("stored+bm25", store, device="cpu")
        assert hybrid.name == f"{encoder.name}+bm25"
        ids = sorted(store.page_ids())
        members = [load_retriever(name, store, device="cpu").score("revenue", ids) for name in (None, "bm25")]
        np.testing.assert_allclose(
            hybrid.score("revenue", ids), np.mean([(s - s.mean()) / s.std() for s in members], axis=0)
        )
        assert len(hybrid.search("revenue", 2)) == 2


def test_a_trec_run_is_found_by_the_text_and_by_the_id_of_its_queries(tmp_path: Path) -> None:
    run = tmp_path / "run.trec"
    run.write_text("q1 Q0 a 1 0.5 x\nq1 Q0 b 2 0.7 x\nq2 Q0 a 1 0.1 x\n")
    retriever = GivenCandidates(read_run(run), [Query("q1", "cats"), Query("q3", "birds")])
    assert (
        retriever.search("cats", 5) == retriever.search("q1", 5) == [Candidate("b", 0.7), Candidate("a", 0.5)]
    )
    with pytest.raises(RetrieverError, match="no candidates for the query 'birds', only for 3 others"):
        retriever.search("birds", 5)


def test_what_was_not_given_is_not_known_and_one_page_by_two_names_is_refused() -> None:
    retriever = GivenCandidates(Run.of_dict({"cats": {"a": 1.0}}))
    with pytest.raises(RetrieverError, match=r"no score for 2 pages under query 'cats', such as 'b'"):
        retriever.score("cats", ["a", "b", "c"])
    with pytest.raises(RetrieverError, match="given twice for query 'cats', by two names"):
        GivenCandidates(Run.of_dict({"cats": {"a": 1.0, "b": 2.0}}), resolve=lambda _: "a")
