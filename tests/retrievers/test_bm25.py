import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ridgerank.errors import RetrieverError, StoreError
from ridgerank.retrievers.bm25 import BM25, score_texts
from ridgerank.store.page_filter import PageSelection
from ridgerank.store.page_store import PageStore
from ridgerank.store.store_writer import StoreWriter
from tests.store.pages import LINEAGE, page_id, row

TEXTS = [
    "Revenue rose in 2023, and revenue will rise again.",
    "Costs fell in 2023.",
    "",
    "Café prices in Zürich",
    "收入 2023",
]


def store_of(uri: str, texts: list[str], *, first: int = 0) -> PageStore:
    rows = [(row(number), text) for number, text in enumerate(texts, start=first)]
    with StoreWriter(uri, LINEAGE) as writer:
        writer.append([replace(each, page=replace(each.page, text=text)) for each, text in rows])
    return PageStore.open(uri)


@pytest.fixture
def bm25(tmp_path: Path) -> Iterator[BM25]:
    with store_of(str(tmp_path / "store"), TEXTS) as store:
        yield BM25(store)


def test_scores_are_lucenes_formula(bm25: BM25) -> None:
    plain = [
        "revenue rose in 2023 and revenue will rise again",
        "costs fell in 2023",
        "",
        "cafe prices in zurich",
    ]
    words = [text.split() for text in [*plain, "收入 2023"]]
    mean = sum(len(page) for page in words) / len(words)
    expected = []
    for page in words:
        score = 0.0
        for word in ("revenue", "2023"):
            holding = sum(word in other for other in words)
            rarity = math.log(1 + (len(words) - holding + 0.5) / (holding + 0.5))
            count = page.count(word)
            score += rarity * count / (count + 1.5 * (1 - 0.75 + 0.75 * len(page) / mean))
        expected.append(score)
    ids = [page_id(number) for number in range(5)]
    np.testing.assert_allclose(bm25.score("Revenue, 2023!", ids), expected, rtol=1e-5)
    best = max(range(5), key=lambda number: expected[number])
    assert bm25.search("Revenue, 2023!", 1)[0].page_id == page_id(best)


def test_case_accents_and_scripts_do_not_hide_a_word(bm25: BM25) -> None:
    assert bm25.search("CAFE ZURICH", 1)[0].page_id == page_id(3)
    assert bm25.search("收入", 1)[0].page_id == page_id(4)


def test_pages_without_a_word_of_the_query_come_last_in_order_of_their_ids(bm25: BM25) -> None:
    candidates = bm25.search("costs", 10)
    assert len(candidates) == 5
    assert candidates[0].page_id == page_id(1)
    others = [candidate.page_id for candidate in candidates[1:]]
    assert others == sorted(others)
    assert {candidate.score for candidate in candidates[1:]} == {0.0}
    assert {candidate.score for candidate in bm25.search("zebra", 10)} == {0.0}


def test_stores_without_pages_or_text_and_unknown_pages_are_errors(tmp_path: Path, bm25: BM25) -> None:
    lacks = r"none of the 3 pages .* text layer.*bm25 has nothing to search"
    for name, texts, reason in (("empty", [], "is empty"), ("scans", ["", " \n", ""], lacks)):
        with store_of(str(tmp_path / name), texts) as store, pytest.raises(RetrieverError, match=reason):
            BM25(store)
    with pytest.raises(StoreError, match=r"not in the page store .*: nothing"):
        bm25.score("revenue", ["nothing"])


def test_a_search_within_pages_has_the_scores_of_a_search_among_all(bm25: BM25) -> None:
    among_all = {candidate.page_id: candidate for candidate in bm25.search("costs 2023", 5)}
    some = [page_id(1), page_id(0)]
    [within] = bm25.search_within(["costs 2023"], 2, PageSelection(frozenset(some), ""))
    assert within == [among_all[one] for one in some]


def test_a_list_is_scored_by_lucene_s_formula_over_store_and_list(bm25: BM25) -> None:
    texts = ["revenue rose", "costs, costs and costs", "revenue in 2023"]
    scores = score_texts("revenue 2023", texts, bm25)
    rarities = [math.log(1 + (8 - held + 0.5) / (held + 0.5)) for held in (1 + 2, 3 + 1)]
    norms = [1.5 * (0.25 + 0.75 * length / 3) for length in (2, 4, 3)]
    expected = [rarities[0] / (1 + norms[0]), 0.0, sum(rarities) / (1 + norms[2])]
    np.testing.assert_allclose(scores, expected)
    assert (score_texts("revenue", texts) != 0).tolist() == [True, False, True]


def test_scripts_without_spaces_are_compared_by_pairs_of_characters() -> None:
    scores = score_texts("営業利益", ["当社の営業利益は増加した", "売上高は減少した", "profit"])
    assert scores[0] > 0 == scores[1] == scores[2]
    assert score_texts("กำไร", ["รายได้และกำไรเพิ่มขึ้น", "ต้นทุน"])[0] > 0
