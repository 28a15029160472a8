"""Every baseline over one small store of drawn pages: it runs, or a row says why not."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from experiments.baselines.base import Baseline
from experiments.baselines.cross_encoders import ImageReranker, TextReranker
from experiments.baselines.gqr import GRID, STEPS, GuidedQueryRefinement, RefinementSettings
from experiments.baselines.load import NAMES, BaselineModels, load_baselines
from experiments.baselines.monoqwen import load_mono_qwen
from experiments.datasets.base import BenchmarkCorpus
from experiments.datasets.load import draw_missing_corpus
from miniature import weights
from miniature.corpora import PLANS
from ridgerank.backbones.base import Backbone
from ridgerank.indexing.index import index_documents
from ridgerank.ragged import Floats
from ridgerank.records import Candidate
from ridgerank.retrievers.bm25 import BM25
from ridgerank.retrievers.encoders import load_encoder
from ridgerank.retrievers.load import load_retriever
from ridgerank.store.page_store import PageStore
from tests.backbones.small_text_models import build_text
from tests.experiments.baselines.small_judges import build_mono_qwen


@pytest.fixture(scope="module", autouse=True)
def _single_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> BenchmarkCorpus:
    plan = replace(PLANS[0], documents=2, pages=(4, 5), questions={"topic": 1, "binding": 1}, lookalikes=0)
    return draw_missing_corpus(plan, tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="module")
def store(
    corpus: BenchmarkCorpus, small_backbone: Backbone, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PageStore]:
    """Drawn pages, prefixes of a random backbone, vectors of the embedded retriever."""
    uri = str(tmp_path_factory.mktemp("store") / "pages")
    encoder = load_encoder(weights("mini-colqwen-small"), device="cpu")
    index_documents(corpus.documents, uri, small_backbone, preset="paper", processes=0, embedder=encoder)
    with PageStore.open(uri) as opened:
        yield opened


@pytest.fixture(scope="module")
def query(corpus: BenchmarkCorpus) -> str:
    return corpus.queries[0].text


@pytest.fixture(scope="module")
def candidates(store: PageStore, query: str) -> list[Candidate]:
    return load_retriever(None, store, device="cpu").search(query, 6)


@pytest.fixture(scope="module")
def baselines(store: PageStore, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Baseline]:
    loaded = load_baselines(
        BaselineModels("miniature", device="cpu"), store, work=tmp_path_factory.mktemp("margins")
    )
    running = {role: baseline for role, baseline in loaded.items() if isinstance(baseline, Baseline)}
    assert running == loaded
    return {str(role): baseline for role, baseline in running.items()}


@pytest.mark.parametrize("role", NAMES["miniature"])
def test_every_stand_in_runs_and_is_named_for_what_it_is(
    role: str, baselines: dict[str, Baseline], query: str, candidates: list[Candidate]
) -> None:
    scores = baselines[role].score(query, candidates)
    assert scores.shape == (6,)
    assert np.isfinite(scores).all()
    assert baselines[role].name not in NAMES["published"].values()
    backwards = baselines[role].score(query, candidates[::-1])
    assert backwards == pytest.approx(scores[::-1], rel=1e-4, abs=1e-4)


def test_the_grid_holds_the_search_of_every_setting(store: PageStore, query: str) -> None:
    encoder = load_encoder(weights("mini-colqwen-small"), device="cpu")
    settings = RefinementSettings(pool=3, learning_rate=5e-3)
    baseline = GuidedQueryRefinement(encoder, store, BM25(store), settings=settings)
    page_ids, by_setting = baseline.search_grid(query)
    assert by_setting.shape == (len(GRID), len(page_ids))
    for steps in STEPS:
        scores = {each.page_id: each.score for each in baseline.search(query, steps=steps)}
        row = by_setting[GRID.index((5e-3, steps))]
        assert [scores[page_id] for page_id in page_ids] == pytest.approx(row.tolist(), abs=1e-5)


def test_published_checkpoints_read_the_stored_text_and_the_page_image(
    store: PageStore, query: str, candidates: list[Candidate], corpus: BenchmarkCorpus, tmp_path: Path
) -> None:
    text, image = build_text("qwen3", tmp_path / "text"), build_mono_qwen(tmp_path / "image")
    models = BaselineModels(
        "published", device="cpu", text_reranker=str(text.folder), image_reranker=str(image.adapter)
    )
    baselines = load_baselines(models, store, work=tmp_path, text="bm25", documents=corpus.documents)
    assert isinstance(baselines["text reranker"], TextReranker)
    assert isinstance(baselines["image reranker"], ImageReranker)
    assert baselines["text reranker"].name == "Qwen3-Reranker-0.6B"
    texts = store.texts()
    expected: Floats = models.text_reranker.judge(
        query, [texts[candidate.page_id] for candidate in candidates]
    )
    assert baselines["text reranker"].score(query, candidates) == pytest.approx(expected)
    by_image = baselines["image reranker"].score(query, candidates)
    assert by_image[::-1] == pytest.approx(baselines["image reranker"].score(query, candidates[::-1]))
    assert len(set(by_image.tolist())) > 1
    assert models.image_reranker.max_pixels == load_mono_qwen(str(image.adapter), device="cpu").max_pixels
