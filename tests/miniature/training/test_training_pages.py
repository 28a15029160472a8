from collections import Counter
from itertools import islice, pairwise, product
from random import Random

from miniature.corpora import Corpus
from miniature.training.reading_lesson import practice_page
from miniature.training.training_pages import joined_words, training_pages, training_queries
from miniature.vocabulary import ENTITIES, FIELDS, MEASURES, PAGE_WORDS, SUBJECTS, Split, split_of
from miniature.world import ROWS, PlannedPage

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
