"""The relevance score of a ranking, and pages left out by it."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgerank.backbones.base import Backbone
from ridgerank.errors import ScoreError
from ridgerank.reranker.order import relevance_scores
from ridgerank.reranker.reranker import Reranker
from ridgerank.store.page_store import PageStore
from ridgerank.store.sidecar import calibrations_folder
from tests.calibrated_store import ByDigest, index_pages, random_calibration, random_target_readout


@pytest.fixture(scope="module")
def reranker(small_backbone: Backbone, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reranker]:
    uri = index_pages(tmp_path_factory.mktemp("scored"), small_backbone, pages=12)
    width = small_backbone.geometry.width
    with PageStore.open(uri) as store:
        calibration = replace(
            random_calibration(store.lineage, width), target_readout=random_target_readout(width)
        )
        retriever = ByDigest(store.page_ids())
    calibration.save(calibrations_folder(uri))
    with Reranker.open(uri, backbone=small_backbone, retriever=retriever) as opened:
        yield opened


numbers = st.floats(-50, 50)


@given(pairs=st.lists(st.tuples(numbers, numbers), min_size=1, max_size=30), known=st.booleans())
def test_scores_are_from_0_to_1_and_never_rise(pairs: list[tuple[float, float]], known: bool) -> None:
    fused, margins = np.array(pairs).T
    scores = relevance_scores(np.sort(fused)[::-1], margins if known else None)
    assert ((scores >= 0) & (scores <= 1)).all()
    assert (np.diff(scores) <= 0).all()


def test_scores_are_the_odds_of_margins_that_the_fused_order_agrees_with() -> None:
    margins = np.array([3.0, 1.0, -2.5])
    fused = (margins - margins.mean()) / margins.std()
    np.testing.assert_allclose(relevance_scores(fused, margins), 1 / (1 + np.exp(-margins)))


def test_equal_fused_scores_share_the_level_of_the_list() -> None:
    level = 1 / (1 + np.exp(-2.0))
    np.testing.assert_allclose(relevance_scores(np.zeros(2), np.array([1.0, 3.0])), [level, level])


def test_without_predicted_margins_the_score_is_the_rank() -> None:
    np.testing.assert_allclose(relevance_scores(np.array([0.3, 0.1, -0.4]), None), [0.75, 0.5, 0.25])


def test_pages_below_are_left_out_and_the_others_keep_rank_and_order(reranker: Reranker) -> None:
    whole = reranker.search("margin", k=12, top_k=12)
    least = whole.pages[5].relevance_score
    cut = reranker.search("margin", k=12, top_k=12, min_score=least)
    assert cut.pages == whole.pages[:6]
    assert reranker.search("margin", k=12, top_k=2, min_score=least).pages == whole.pages[:2]


def test_no_page_left_is_an_empty_ranking_with_a_note(reranker: Reranker) -> None:
    ranking = reranker.search("margin", k=12, min_score=1.0)
    assert ranking.pages == ()
    assert "no page reaches min_score 1" in ranking.note


def test_batches_and_tasks_leave_out_the_same_pages(reranker: Reranker) -> None:
    expected = reranker.search("margin", k=12, min_score=0.5).pages
    assert reranker.search_many(["margin"], k=12, min_score=0.5)[0].pages == expected
    assert asyncio.run(reranker.asearch("margin", k=12, min_score=0.5)).pages == expected
    candidates = [
        (page.page_id, page.retriever_score) for page in reranker.search("margin", k=12, top_k=12).pages
    ]
    whole = reranker.rank("margin", candidates, min_score=0.5).pages
    assert reranker.rank_many(["margin"], [candidates], min_score=0.5)[0].pages == whole
    assert asyncio.run(reranker.arank("margin", candidates, min_score=0.5)).pages == whole


@pytest.mark.parametrize("min_score", [-0.1, 1.1, float("nan")])
def test_a_min_score_outside_0_to_1_is_refused(reranker: Reranker, min_score: float) -> None:
    with pytest.raises(ScoreError, match="expected a number from 0 to 1"):
        reranker.search("margin", min_score=min_score)


def test_no_candidates_are_no_error(reranker: Reranker) -> None:
    assert reranker.rank("margin", [], min_score=0.5).pages == ()
