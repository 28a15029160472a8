import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from ridgerank.errors import ArtifactError, ExtraMissing, RetrieverError
from ridgerank.retrievers import dense
from ridgerank.retrievers.dense import INSTRUCTION, DenseText
from ridgerank.store.page_store import PageStore
from tests.retrievers.small_embedder import build_embedder
from tests.retrievers.test_bm25 import store_of
from tests.store.pages import page_id

TEXTS = ["revenue rose in 2023", "who is on page 7", " ", "the image", "what was the revenue"]
QUERY = "revenue in 2023?"


@pytest.fixture(scope="module")
def embedder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_embedder(tmp_path_factory.mktemp("dense"))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[PageStore]:
    with store_of(str(tmp_path / "store"), TEXTS) as opened:
        yield opened


def test_scores_are_cosines_with_the_instruction_before_the_query_alone(
    embedder: Path, store: PageStore
) -> None:
    model = SentenceTransformer(str(embedder), device="cpu")
    pages = model.encode(TEXTS, normalize_embeddings=True)
    [query] = model.encode([INSTRUCTION + QUERY], normalize_embeddings=True)
    retriever = DenseText(str(embedder), store, device="cpu")
    assert retriever.name == "dense:embedder"
    expected = pages @ query
    expected[2] = -1  # a page without text comes last
    ids = [page_id(number) for number in range(5)]
    np.testing.assert_allclose(retriever.score(QUERY, ids), expected, atol=1e-5)
    order = sorted(range(5), key=lambda number: -expected[number])
    assert [candidate.page_id for candidate in retriever.search(QUERY, 5)] == [
        page_id(number) for number in order
    ]
    both = retriever.search_many([QUERY, "cats"], 3)
    assert [candidate.page_id for candidate in both[0]] == [page_id(number) for number in order[:3]]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [({"pooling": "mean"}, ""), ({"prompts": {"query": "find: "}}, "find: ")],
    ids=["an encoder has none", "its own goes first"],
)
def test_the_prompt_is_the_models(
    tmp_path: Path, store: PageStore, kind: dict[str, Any], expected: str
) -> None:
    retriever = DenseText(str(build_embedder(tmp_path / "model", **kind)), store, device="cpu")
    assert retriever._prompt == expected


def test_pages_are_embedded_once(
    embedder: Path, store: PageStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedded: list[str] = []
    real = DenseText._embed

    def watched(self: DenseText, texts: list[str], *, prompt: str | None) -> Any:  # noqa: ANN401
        if prompt is None:
            embedded.extend(texts)
        return real(self, texts, prompt=prompt)

    monkeypatch.setattr(DenseText, "_embed", watched)
    monkeypatch.setattr(dense, "_PAGES_PER_SAVE", 2)
    first = DenseText(str(embedder), store, device="cpu").search(QUERY, 5)
    assert embedded == TEXTS
    assert DenseText(str(embedder), store, device="cpu").search(QUERY, 5) == first
    with store_of(store.uri, ["a page that came later"], first=5) as grown:
        DenseText(str(embedder), grown, device="cpu")
        assert embedded == [*TEXTS, "a page that came later"]
        DenseText(str(build_embedder(tmp_path / "other", seed=1)), grown, device="cpu")
        assert len(embedded) == 12
    assert len(list((Path(store.uri) / "embeddings").iterdir())) == 2


def test_damaged_embeddings_are_refused(embedder: Path, store: PageStore) -> None:
    DenseText(str(embedder), store, device="cpu")
    [kept] = (Path(store.uri) / "embeddings").iterdir()
    kept.write_bytes(kept.read_bytes()[:-20])
    with pytest.raises(ArtifactError, match=r"cannot be read as embeddings.*remove it"):
        DenseText(str(embedder), store, device="cpu")


def test_unknown_models_are_refused(tmp_path: Path, store: PageStore) -> None:
    with pytest.raises(RetrieverError, match=r"cannot load .*no-such-model.*: the text embedder"):
        DenseText(str(tmp_path / "no-such-model"), store, device="cpu")


def test_it_says_how_to_get_sentence_transformers(
    store: PageStore, embedder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(ExtraMissing, match=r"pip install 'ridgerank\[dense\]'"):
        DenseText(str(embedder), store)
