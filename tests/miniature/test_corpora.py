from collections import Counter
from itertools import islice, pairwise, product
from random import Random

from miniature.corpora import Corpus
from miniature.questions import About, AboutWithout, Binding, ChartLookUp, Question
from miniature.training.reading_lesson import practice_page
from miniature.training.training_pages import joined_words, training_pages, training_queries
from miniature.vocabulary import ENTITIES, FIELDS, MEASURES, PAGE_WORDS, SUBJECTS, YEARS, Split, split_of
from miniature.world import ROWS, PlacedWord, PlannedPage


def test_pages_queries_and_documents_keep_to_their_promised_numbers(corpora: dict[str, Corpus]) -> None:
    for corpus in corpora.values():
        assert 150 <= len(corpus.pages()) <= 400
        assert 60 <= len(corpus.questions) <= 150
        assert all(8 <= len(pages) <= 30 for pages in corpus.documents.values())
        assert len({question.text for question in corpus.questions}) == len(corpus.questions)


def test_every_question_is_answered_and_partial_answers_exist(corpora: dict[str, Corpus]) -> None:
    for corpus in corpora.values():
        assert all(1 <= list(grades.values()).count(2) <= 6 for grades in corpus.grades)
        assert any(1 in grades.values() for grades in corpus.grades)


def test_grades_equal_those_read_off_the_placed_words_alone(corpora: dict[str, Corpus]) -> None:
    for corpus in corpora.values():
        readings = {reference: Reading(page) for reference, page in corpus.pages().items()}
        for question, grades in zip(corpus.questions, corpus.grades, strict=True):
            read = {reference: reading.grade(question) for reference, reading in readings.items()}
            assert {reference: grade for reference, grade in read.items() if grade} == grades, question.text


class Reading:
    """What a page says, read from where its words stand, by someone who never saw its facts."""

    def __init__(self, page: PlannedPage) -> None:
        rows: dict[int, list[PlacedWord]] = {}
        for placed in sorted(page.words, key=lambda placed: (placed.row, placed.column)):
            rows.setdefault(placed.row, []).append(placed)
        lines = [[placed.word for placed in row] for row in rows.values()]
        self.words = {word for line in lines for word in line}
        header = {word for line in lines if set(line) <= set(YEARS) for word in line}
        has_axes = any(
            mark.shape == "line" and len(mark.points) == 6 and mark.ink == "rule" for mark in page.marks
        )
        self.bound: list[tuple[str, str, set[str], bool]] = []
        for line in lines:
            here = set(line) & set(YEARS)
            for entity in set(line) & set(ENTITIES):
                for measure in set(line) & set(MEASURES):
                    self.bound.append((entity, measure, here or header, has_axes and not here))
        (self.title,) = (
            tuple(placed.word for placed in row) for row in rows.values() if row[0].width_cells == 3
        )
        self.phrases = {
            pair for line in lines for pair in pairwise(line) if pair[0] in FIELDS and pair[1] in SUBJECTS
        }

    def grade(self, question: Question) -> int:
        match question:
            case Binding(entity, measure, year):
                years_of_pair = [years for e, m, years, _ in self.bound if (e, m) == (entity, measure)]
                return (
                    0
                    if not years_of_pair
                    else 2
                    if not year or any(year in years for years in years_of_pair)
                    else 1
                )
            case ChartLookUp(entity, measure):
                charted = [chart for e, m, _, chart in self.bound if (e, m) == (entity, measure)]
                return 0 if not charted else 2 if any(charted) else 1
            case About(topic):
                return 2 if self.title == topic else int(topic in self.phrases)
            case AboutWithout(topic, without):
                return 0 if without in self.words else self.grade(About(topic))
            case _:
                raise AssertionError(question)


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
