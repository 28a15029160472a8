from pathlib import Path

import pytest
import torch

from ridgerank.backbones.base import Backbone
from ridgerank.backbones.decoder import PrefixBatch
from ridgerank.documents.render import list_pages, render_pages
from ridgerank.errors import StoreError
from ridgerank.indexing.index import index_documents
from ridgerank.lineage import Keep
from ridgerank.records import Page
from ridgerank.scoring.shallow import ShallowPass
from ridgerank.store.page_store import PageStore
from tests.conftest import write_pdf


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("documents")
    write_pdf(folder / "a.pdf", pages=5)
    return folder


@pytest.fixture(scope="module")
def store(documents: Path, small_backbone: Backbone, tmp_path_factory: pytest.TempPathFactory) -> str:
    uri = str(tmp_path_factory.mktemp("stores") / "store")
    keep = Keep.parse("stride 1")
    index_documents([documents], uri, small_backbone, keep=keep, preset="paper", processes=0)
    return uri


def test_a_stored_page_gives_the_state_of_the_page_itself(
    documents: Path, store: str, small_backbone: Backbone
) -> None:
    pages = [
        page
        for page in render_pages(list_pages([documents]), max_pixels=small_backbone.max_pixels)
        if isinstance(page, Page)
    ]
    exact = small_backbone.states(
        ["revenue"], PrefixBatch(small_backbone.encode([page.image for page in pages], exit_layer=4))
    )
    shallow = ShallowPass(small_backbone, PageStore.open(store))
    found = shallow.run("revenue", [page.page_id for page in pages])
    assert found.states.dtype == torch.float32
    assert ((found.states - exact).norm(dim=1) / exact.norm(dim=1)).max() < 0.01
    assert found.compute_ms > 0


def test_streaming_caching_and_one_page_at_a_time_agree(store: str, small_backbone: Backbone) -> None:
    cached = ShallowPass(small_backbone, PageStore.open(store))
    streamed = ShallowPass(small_backbone, PageStore.open(store), cache_bytes=0)
    ids = [*cached.store.page_ids(), cached.store.page_ids()[0]]
    together = cached.run("revenue in 2023", ids).states
    torch.testing.assert_close(streamed.run("revenue in 2023", ids).states, together)
    alone = torch.cat([cached.run("revenue in 2023", [page_id]).states for page_id in ids])
    torch.testing.assert_close(alone, together, rtol=1e-4, atol=1e-5)
    counts = cached.cache_counts()
    assert (counts.misses, counts.pages) == (5, 5)
    assert counts.hits > 0
    assert streamed.cache_counts().misses == 0


def test_a_page_that_is_not_stored_is_named(store: str, small_backbone: Backbone) -> None:
    shallow = ShallowPass(small_backbone, PageStore.open(store))
    with pytest.raises(StoreError, match="no-such-page; index them first"):
        shallow.run("revenue", ["no-such-page"])
    with pytest.raises(StoreError, match="no pages"):
        shallow.run("revenue", [])
