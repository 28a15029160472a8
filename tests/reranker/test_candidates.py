"""A candidate list: as users write it, in passes that it shares with others, and its relevance scores."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgerank.backbones.base import Backbone
from ridgerank.errors import ScoreError
from ridgerank.reranker import candidates
from ridgerank.reranker.candidates import PAGES_PER_PASS, relevance_scores, to_documents
from ridgerank.reranker.reranker import Reranker
from ridgerank.scoring.shallow import ShallowPass
from ridgerank.store.page_store import PageStore
from tests.calibrated_store import ByDigest, index_pages, random_calibration, random_target_readout

QUERIES = ["red bars", "blue bars", "wide bars", "what is on the first page of it?", "tall"]
NUMBERS = st.floats(-50, 50)


@pytest.fixture(scope="module")
def reranker(tmp_path_factory: pytest.TempPathFactory, small_backbone: Backbone) -> Iterator[Reranker]:
    width = small_backbone.geometry.width
    store = PageStore.open(index_pages(tmp_path_factory.mktemp("pages"), small_backbone, pages=24))
    calibration = replace(
        random_calibration(store.lineage, width), target_readout=random_target_readout(width)
    )
    retriever = ByDigest(store.page_ids())
    with Reranker(ShallowPass(small_backbone, store), calibration, retriever=retriever) as opened:
        yield opened


def test_what_is_no_candidate_is_refused() -> None:
    others: list[Any] = [None, "a.pdf#1", [("a", None)], [5], {"a": "5"}]
    for other in others:
        with pytest.raises(ScoreError, match=r"expected a (list of pages or texts|page, a text, or)"):
            to_documents(other)


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
    monkeypatch.setattr(candidates, "shares_passes", lambda device: True)
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


def test_the_readout_alone_asks_no_retriever(reranker: Reranker, monkeypatch: pytest.MonkeyPatch) -> None:
    page_ids = reranker.store.page_ids()[:6]
    usual = reranker.rank("bars", page_ids)
    monkeypatch.delattr(ByDigest, "score")
    alone = reranker.rank("bars", page_ids, weight=1.0)
    assert alone.weight == 1.0
    assert "readout alone" in alone.reasons[0]
    by_readout = sorted(usual.pages, key=lambda page: -page.readout_score)
    assert [page.page_id for page in alone.pages] == [page.page_id for page in by_readout]
    assert all(page.retriever_part == 0 for page in alone.pages)


@given(pairs=st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=30), known=st.booleans())
def test_scores_are_from_0_to_1_and_never_rise(pairs: list[tuple[float, float]], known: bool) -> None:
    fused, margins = np.array(pairs).T
    scores = relevance_scores(np.sort(fused)[::-1], margins if known else None)
    assert ((scores >= 0) & (scores <= 1)).all()
    assert (np.diff(scores) <= 0).all()


def test_scores_are_the_odds_of_margins_that_the_fused_order_agrees_with_or_the_rank() -> None:
    margins = np.array([3.0, 1.0, -2.5])
    fused = (margins - margins.mean()) / margins.std()
    np.testing.assert_allclose(relevance_scores(fused, margins), 1 / (1 + np.exp(-margins)))
    np.testing.assert_allclose(relevance_scores(fused, None), [0.75, 0.5, 0.25])


def test_pages_below_are_left_out_and_the_others_keep_rank_and_order(reranker: Reranker) -> None:
    whole = reranker.search("margin", k=12, top_k=12)
    least = whole.pages[5].relevance_score
    cut = reranker.search("margin", k=12, top_k=12, min_score=least)
    assert cut.pages == whole.pages[:6]
    assert reranker.search("margin", k=12, top_k=2, min_score=least).pages == whole.pages[:2]
    none = reranker.search("margin", k=12, min_score=1.0)
    assert none.pages == ()
    assert "no page reaches min_score 1" in none.reasons[-1]


def test_a_weight_or_min_score_outside_0_to_1_is_refused(reranker: Reranker) -> None:
    with pytest.raises(ScoreError, match="weight is 2"):
        reranker.rank("bars", reranker.store.page_ids()[:2], weight=2.0)
    for min_score in (-0.1, 1.1, float("nan")):
        with pytest.raises(ScoreError, match="expected a number from 0 to 1"):
            reranker.search("margin", min_score=min_score)
