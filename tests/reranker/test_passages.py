"""Lines of a page and the attention on them, from tokens and word boxes."""

import pytest

from ridgerank.documents.text import TextBox, match_words
from ridgerank.reranker.explain import split_passages, token_regions

TEXT = "Net sales\n\n| Asia | 12 |\nCosts"
BOXES = [
    TextBox("Net", 0.1, 0.1, 0.2, 0.15),
    TextBox("sales", 0.25, 0.1, 0.4, 0.15),
    TextBox("stamp", 0.9, 0.9, 1.0, 1.0),  # the text does not have it
    TextBox("Asia", 0.1, 0.5, 0.2, 0.55),
    TextBox("12", 0.5, 0.5, 0.55, 0.55),
]
SPANS = [(0, 3), (3, 9), (9, 11), (11, 17), (20, 22), (25, 30)]
"""Net, sales, a blank line, the first cell, the second, Costs."""
WEIGHTS = [0.1, 0.2, 0.05, 0.02, 0.03, 0.4]


def test_a_token_lies_where_its_word_stands_and_others_have_no_place() -> None:
    regions = token_regions(SPANS, list(match_words(TEXT, BOXES)))
    assert regions == [
        (0.1, 0.1, 0.2, 0.15),
        (0.25, 0.1, 0.4, 0.15),
        None,
        (0.1, 0.5, 0.2, 0.55),
        (0.5, 0.5, 0.55, 0.55),
        None,
    ]


def test_a_line_has_the_attention_of_its_tokens_and_the_box_around_its_words() -> None:
    passages = split_passages(TEXT, SPANS, WEIGHTS, list(match_words(TEXT, BOXES)))
    assert [passage.text for passage in passages] == ["Net sales", "| Asia | 12 |", "Costs"]
    assert [passage.weight for passage in passages] == pytest.approx([0.35, 0.05, 0.4])
    assert [passage.region for passage in passages] == [(0.1, 0.1, 0.4, 0.15), (0.1, 0.5, 0.55, 0.55), None]


def test_lines_the_model_did_not_read_are_left_out() -> None:
    passages = split_passages(TEXT, SPANS[:2], WEIGHTS[:2], [])
    assert [(passage.text, passage.region) for passage in passages] == [("Net sales", None)]
