from collections import Counter
from itertools import islice, pairwise, product
from random import Random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from miniature.corpora import Corpus
from miniature.training.reading_lesson import practice_page
from miniature.training.training_pages import (
    KINDS,
    PAGES_PER_THEME,
    joined_words,
    training_pages,
    training_queries,
)
from miniature.training.word_cells import WORD_IDS, word_grid
from miniature.vocabulary import (
    ENTITIES,
    FIELDS,
    MEASURES,
    PAGE_WORDS,
    SUBJECTS,
    Split,
    split_of,
)
from miniature.world import COLUMNS, ROWS, PlannedPage

PAGES = 400


def joined_on(page: PlannedPage) -> set[tuple[str, str]]:
    """Every entity and measure on one row, every field before a subject: read off the placed words."""
    rows: dict[int, list[str]] = {}
    for placed in sorted(page.words, key=lambda placed: (placed.row, placed.column)):
        rows.setdefault(placed.row, []).append(placed.word)
    joined: set[tuple[str, str]] = set()
    for row in rows.values():
        joined |= set(product(set(row) & set(ENTITIES), set(row) & set(MEASURES)))
        joined |= {pair for pair in pairwise(row) if pair[0] in FIELDS and pair[1] in SUBJECTS}
    return joined


def test_no_combination_of_any_corpus_is_ever_trained_on(corpora: dict[str, Corpus]) -> None:
    evaluated: set[tuple[str, str]] = set()
    for corpus in corpora.values():
        evaluated |= {joined for page in corpus.pages().values() for joined in joined_on(page)}
        evaluated |= {joined for question in corpus.questions if (joined := joined_words(question))}
    trained: set[tuple[str, str]] = set()
    generator = Random(0)
    for page in islice(training_pages(0), PAGES):
        trained |= joined_on(page)
        trained |= {
            joined for each in training_queries(page, generator) if (joined := joined_words(each.question))
        }
    assert len(evaluated) > 300
    assert len(trained) > 300
    assert not evaluated & trained
    assert {split_of(*joined) for joined in evaluated} == {Split.EVALUATION}


@given(st.integers(0, 1 << 32))
@settings(max_examples=20, deadline=None)
def test_whatever_the_seed_training_keeps_to_its_split(seed: int) -> None:
    generator = Random(seed)
    for page in islice(training_pages(seed), PAGES_PER_THEME):
        pairs_asked = {joined_words(each.question) for each in training_queries(page, generator)} - {None}
        assert all(split_of(*joined) is Split.TRAINING for joined in joined_on(page) | pairs_asked if joined)


def test_practice_pages_of_the_reading_lesson_keep_to_the_training_split() -> None:
    """Nowhere on a row, adjacent or not, in either order: what belongs together in a corpus stays apart."""
    generator = Random("practice")
    combinations = (*product(ENTITIES, MEASURES), *product(FIELDS, SUBJECTS))
    evaluated = [pair for pair in combinations if split_of(*pair) is Split.EVALUATION]
    practised: Counter[str] = Counter()
    for _ in range(PAGES // 2):
        page = practice_page(generator)
        practised.update(placed.word for placed in page.words)
        for row in range(ROWS):
            words = {placed.word for placed in page.words if placed.row == row}
            assert not [pair for pair in evaluated if words.issuperset(pair)]
    assert set(practised) == set(PAGE_WORDS)  # no word is lost by it


def test_a_seed_gives_the_same_stream_and_another_seed_another() -> None:
    first, again, other = (list(islice(training_pages(seed), 20)) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_questions_come_in_every_kind_with_answers_and_traps() -> None:
    generator = Random(0)
    examples = [
        each for page in islice(training_pages(0), PAGES) for each in training_queries(page, generator)
    ]
    for kind in KINDS:
        grades = [each.grade for each in examples if each.question.kind == kind]
        assert grades.count(2) > 0.1 * len(grades), kind
        assert grades.count(0) > 0.3 * len(grades), kind
        traps = [each for each in examples if each.question.kind == kind and each.is_hard and each.grade == 0]
        assert kind == "word" or len(traps) > 0.1 * len(grades), kind


def test_a_question_is_asked_once_a_page_and_graded_as_it_grades_itself() -> None:
    generator = Random(0)
    for page in islice(training_pages(3), 40):
        examples = training_queries(page, generator)
        assert len({each.question.text for each in examples}) == len(examples)
        assert all(each.question.grade(page) == each.grade for each in examples)


def test_words_lie_on_the_grid_and_never_over_each_other() -> None:
    for page in islice(training_pages(0), PAGES):
        grid = word_grid(page)
        assert grid.shape == (ROWS, COLUMNS)
        assert np.count_nonzero(grid) == sum(placed.width_cells for placed in page.words)
        assert set(grid.ravel()) - {0} == {WORD_IDS[placed.word] for placed in page.words}


def test_every_page_word_has_one_id_and_0_is_free() -> None:
    assert sorted(WORD_IDS.values()) == list(range(1, len(PAGE_WORDS) + 1))
