"""Requests that share a pass get what each would get alone."""

from typing import Any

import numpy as np
import pytest
import torch

from ridgerank.backbones.base import Backbone
from ridgerank.errors import ScoreError
from ridgerank.reranker.batching import MIN_SHARED_PAGES, PAGES_PER_PASS, PassBatcher
from ridgerank.reranker.reranker import Reranker
from ridgerank.scoring.shallow import ShallowPass
from ridgerank.store.codec import StoredPrefixes
from ridgerank.store.page_store import PageStore
from tests.calibrated_store import ByDigest, index_pages, random_calibration

QUERIES = ["red bars", "blue bars", "wide bars", "what is on the first page of it?", "tall"]


@pytest.fixture(scope="module")
def reranker(tmp_path_factory: pytest.TempPathFactory, small_backbone: Backbone) -> Reranker:
    store = PageStore.open(index_pages(tmp_path_factory.mktemp("pages"), small_backbone, pages=24))
    shallow = ShallowPass(small_backbone, store)
    calibration = random_calibration(store.lineage, small_backbone.geometry.width)
    return Reranker(shallow, calibration, retriever=ByDigest(store.page_ids()))


def test_a_pass_over_several_queries_is_each_query_s_own_pass(reranker: Reranker) -> None:
    page_ids = reranker.store.page_ids()
    own = [page_ids[:3], page_ids[3:4], page_ids[2:9], page_ids[9:24], page_ids[:2]]
    packed = reranker.store.read_prefixes([page_id for ids in own for page_id in ids])
    prefixes = StoredPrefixes(packed)
    owners = [number for number, ids in enumerate(own) for _ in ids]
    together = reranker.backbone.states(QUERIES, prefixes, owners=owners)
    shallow = ShallowPass(reranker.backbone, reranker.store)
    alone = [shallow.run(query, ids).states for query, ids in zip(QUERIES, own, strict=True)]
    torch.testing.assert_close(together, torch.cat(alone), rtol=1e-5, atol=1e-5)


def test_lists_ranked_together_are_ranked_as_alone(
    reranker: Reranker, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared: list[int] = []
    run_lists = ShallowPass.run_lists

    def count_lists(shallow: ShallowPass, lists: Any, **options: Any) -> Any:  # noqa: ANN401
        if len(lists) > 1:
            shared.append(len(lists))
        return run_lists(shallow, lists, **options)

    monkeypatch.setattr(ShallowPass, "run_lists", count_lists)
    prepared = [reranker.retrieve([query], k=12)[0] for query in QUERIES * 3]
    together = reranker.rank_lists(prepared)
    assert sum(shared) >= 9
    assert max(shared) * 12 <= PAGES_PER_PASS
    for query, ranking in zip(QUERIES * 3, together, strict=True):
        alone = reranker.search(query, k=12, top_k=12)
        assert [page.page_id for page in ranking.pages] == [page.page_id for page in alone.pages]
        for name in ("readout_score", "fused_score"):
            found, wanted = ([getattr(page, name) for page in one.pages] for one in (ranking, alone))
            # Standardizing the nearly equal states of a random model enlarges the last digits.
            np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-4)


def test_short_and_empty_lists_run_alone(reranker: Reranker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(PassBatcher, "_run_shared")
    page_ids = reranker.store.page_ids()
    prepared = [reranker.prepare(query, page_ids[: MIN_SHARED_PAGES - 1]) for query in QUERIES]
    empty = reranker.prepare("nothing", [])
    rankings = reranker.rank_lists([*prepared, empty])
    assert [len(ranking.pages) for ranking in rankings] == [MIN_SHARED_PAGES - 1] * 5 + [0]


def test_the_readout_alone_asks_no_retriever(reranker: Reranker, monkeypatch: pytest.MonkeyPatch) -> None:
    page_ids = reranker.store.page_ids()[:6]
    usual = reranker.rank("bars", page_ids)
    monkeypatch.delattr(ByDigest, "score")
    alone = reranker.rank("bars", page_ids, weight=1.0)
    assert alone.weight == 1.0
    assert "readout alone" in alone.note
    by_readout = sorted(usual.pages, key=lambda page: -page.readout_score)
    assert [page.page_id for page in alone.pages] == [page.page_id for page in by_readout]
    assert all(page.retriever_part == 0 for page in alone.pages)


def test_a_weight_beyond_its_range_is_refused(reranker: Reranker) -> None:
    with pytest.raises(ScoreError, match="weight of 2"):
        reranker.rank("bars", reranker.store.page_ids()[:2], weight=2.0)
