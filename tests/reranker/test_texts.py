"""Lists of texts, alone and among stored pages, over a model that reads text."""

from collections.abc import Iterator
from itertools import permutations

import numpy as np
import pytest

from ridgerank.backbones.load import load_backbone
from ridgerank.indexing.index import index_documents
from ridgerank.reranker.reranker import Reranker
from ridgerank.retrievers.bm25 import BM25, score_texts
from ridgerank.scoring.shallow import ShallowPass
from ridgerank.store.page_store import PageStore
from tests.backbones.small_text_models import build_text
from tests.calibrated_store import random_calibration, write_reports

QUERY = "revenue of Norway"
TEXTS = ["The revenue of Norway rose.", "The debt of Peru fell.", "Norway exports energy.", "Nothing else."]


@pytest.fixture(scope="module")
def reranker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reranker]:
    folder = tmp_path_factory.mktemp("texts")
    backbone = load_backbone(build_text("llama", folder / "model").folder, device="cpu")
    index_documents([write_reports(folder / "in", pages=8)], str(folder / "store"), backbone, processes=0)
    store = PageStore.open(str(folder / "store"))
    calibration = random_calibration(store.lineage, backbone.geometry.width)
    with Reranker(ShallowPass(backbone, store), calibration, retriever=BM25(store)) as opened:
        yield opened


def test_texts_and_stored_pages_are_ranked_on_one_scale_in_whatever_order_they_come(
    reranker: Reranker,
) -> None:
    stored = reranker.store.page_ids()[:2]
    texts = {page.page_id: page.text for page in reranker.store.pages(stored)}
    everything = [*texts.values(), *TEXTS]
    expected = dict(zip([*stored, *TEXTS], score_texts(QUERY, everything, BM25(reranker.store)), strict=True))
    fused = None
    for sent in list(permutations([*stored, *TEXTS]))[::97]:
        ranking = reranker.rank(QUERY, sent)
        assert ranking.reranked
        called = {f"documents[{place}]": name for place, name in enumerate(sent)}
        found = {called.get(page.reference, page.page_id): page for page in ranking.pages}
        assert {name: page.retriever_score for name, page in found.items()} == expected
        scores = {name: page.fused_score for name, page in found.items()}
        assert fused in (None, scores)
        fused = scores


def test_a_list_that_shares_no_word_with_the_query_stays_as_it_was_sent(reranker: Reranker) -> None:
    ranking = reranker.rank("ostrich", TEXTS)
    assert [page.reference for page in ranking.pages] == [f"documents[{place}]" for place in range(4)]
    assert not ranking.reranked
    assert "no word of the query tells the documents apart" in ranking.reasons[0]
    assert [page.relevance_score for page in ranking.pages] == [0.8, 0.6, 0.4, 0.2]


def test_texts_that_there_is_no_time_for_follow_in_the_order_of_bm25(reranker: Reranker) -> None:
    by_words = np.argsort(-score_texts(QUERY, TEXTS, BM25(reranker.store)), kind="stable").tolist()
    ranking = reranker.rank(QUERY, TEXTS, seconds=0.0)
    assert [page.reference for page in ranking.pages] == [f"documents[{place}]" for place in by_words]
    assert not ranking.reranked
    some = reranker.rank(QUERY, TEXTS, max_encoded=2)
    assert some.reranked
    assert [page.reference for page in some.pages[2:]] == [f"documents[{place}]" for place in by_words[2:]]
    assert [np.isnan(page.readout_score) for page in some.pages] == [False, False, True, True]
    assert "2 documents were not read, for want of time: they stand last" in some.reasons


def test_a_text_is_cut_where_that_is_asked_for_or_the_model_reads_no_further(reranker: Reranker) -> None:
    long = "revenue of Norway " * 400
    whole, cut = (reranker.rank(QUERY, [long, *TEXTS], max_tokens_per_doc=most) for most in (None, 8))
    assert "1 texts were cut after as many tokens as the model reads" in whole.reasons
    assert (
        "5 texts were cut after 8 tokens" in cut.reasons or "1 texts were cut after 8 tokens" in cut.reasons
    )
    assert len({page.page_id for page in cut.pages} & {page.page_id for page in whole.pages}) < 5
