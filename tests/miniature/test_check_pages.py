"""The pages on which the shipped models are checked."""

from dataclasses import replace

import pytest

from ridgerank.errors import MiniatureError
from ridgerank.miniature.check_pages import choose_check_pages
from ridgerank.miniature.corpora import find_plan, make_corpus


def test_each_page_alone_answers_its_two_queries() -> None:
    corpus = make_corpus(find_plan("alder"))
    references, queries = choose_check_pages(corpus)
    grades = dict(zip((question.text for question in corpus.questions), corpus.grades, strict=True))
    assert [page for _, page in queries] == [0, 0, 1, 1]
    for text, page in queries:
        assert references[page] in grades[text]
        assert references[1 - page] not in grades[text]


def test_a_corpus_without_such_pages_is_refused() -> None:
    corpus = make_corpus(find_plan("alder"))
    with pytest.raises(MiniatureError, match="no two pages of alder"):
        choose_check_pages(replace(corpus, questions=corpus.questions[:1], grades=corpus.grades[:1]))
