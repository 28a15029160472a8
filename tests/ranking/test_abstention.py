"""Probabilities in a ranking, and pages left out for want of it."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from ridgerank.backbones.base import Backbone
from ridgerank.errors import ScoreError
from ridgerank.ranking.abstention import NO_ANSWER, drop_improbable
from ridgerank.ranking.reranker import Reranker
from ridgerank.records import AnswerProbability
from ridgerank.store.page_store import PageStore
from ridgerank.store.sidecar import calibrations_folder
from tests.calibrated_store import ByDigest, index_pages, random_calibration, random_relevance


@pytest.fixture(scope="module")
def reranker(small_backbone: Backbone, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reranker]:
    uri = index_pages(tmp_path_factory.mktemp("abstaining"), small_backbone, pages=12)
    width = small_backbone.geometry.width
    with PageStore.open(uri) as store:
        calibration = replace(random_calibration(store.lineage, width), relevance=random_relevance(width))
        retriever = ByDigest(store.page_ids())
    calibration.save(calibrations_folder(uri))
    with Reranker.open(uri, backbone=small_backbone, retriever=retriever) as opened:
        yield opened


def test_a_page_has_the_same_probability_in_every_list(reranker: Reranker) -> None:
    whole = reranker.search("margin", k=12, top_k=12).pages
    for page in whole[:3]:
        [alone] = reranker.rank("margin", [(page.page_id, 1.0)]).pages
        assert alone.probability == pytest.approx(page.probability, abs=1e-6)
    assert len({page.probability for page in whole}) == 12


def test_pages_below_are_left_out_and_the_others_keep_rank_and_order(reranker: Reranker) -> None:
    whole = reranker.search("margin", k=12, top_k=12)
    least = float(np.median([page.probability or 0.0 for page in whole.pages]))
    cut = reranker.search("margin", k=12, top_k=12, min_score=least)
    assert cut.pages == tuple(page for page in whole.pages if (page.probability or 0.0) >= least)
    assert 0 < len(cut.pages) < 12
    assert cut.answered == whole.answered
    best = reranker.search("margin", k=12, top_k=2, min_score=least)
    assert best.pages == cut.pages[:2]  # the best of those that are left


def test_no_page_left_is_an_empty_ranking_with_a_note(reranker: Reranker) -> None:
    ranking = reranker.search("margin", k=12, min_score=1.0)
    assert ranking.pages == ()
    assert NO_ANSWER in ranking.note
    assert ranking.answered.calibrated


def test_no_page_is_left_where_an_answer_is_improbable_though_a_page_is_not(reranker: Reranker) -> None:
    whole = reranker.search("margin", k=12, top_k=12)
    best = max(page.probability or 0.0 for page in whole.pages)
    doubted = replace(whole, answered=AnswerProbability(best / 2, calibrated=True))
    assert drop_improbable(whole, best).pages
    assert drop_improbable(doubted, best).pages == ()
    assert f"that any of 12 does has {best / 2:.2f}, wanted {best:g}" in drop_improbable(doubted, best).note


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
def test_what_is_no_probability_is_refused(reranker: Reranker, min_score: float) -> None:
    with pytest.raises(ScoreError, match="wanted a probability from 0 to 1"):
        reranker.search("margin", min_score=min_score)


def test_no_candidates_are_no_answer_and_no_error(reranker: Reranker) -> None:
    ranking = reranker.rank("margin", [], min_score=0.5)
    assert ranking.pages == ()
    assert ranking.answered.probability is None
