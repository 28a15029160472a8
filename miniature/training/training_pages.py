"""The endless stream of pages and questions that models learn from.

All combinations are of the training split: no pair of words that belongs together here, on a page or in a
question, belongs together in a corpus. Any question can be graded on any page of the stream, by its `grade`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import TypeAlias

import numpy as np

from miniature.layouts import LAYOUTS, plan_page
from miniature.questions import (
    ANSWERS,
    NOT,
    PARTLY,
    About,
    AboutWithout,
    Binding,
    ChartLookUp,
    Question,
    content_words,
)
from miniature.vocabulary import (
    ENTITIES,
    FIELDS,
    MEASURES,
    NUMBERS,
    PAGE_WORDS,
    SUBJECTS,
    YEARS,
    Lexicon,
    Scale,
    Split,
    draw_theme,
    split_of,
)
from miniature.world import COLUMNS, ROWS, PlannedPage, draw_style
from ridgerank.ragged import Ints

WORD_IDS = {word: number for number, word in enumerate(PAGE_WORDS, start=1)}
"""Page word → its number; 0 is a cell without a word."""


def word_grid(page: PlannedPage) -> Ints:
    """(16, 12) the id of each cell's word, 0 where there is none."""
    grid = np.zeros((ROWS, COLUMNS), dtype=np.int64)
    for placed in page.words:
        grid[placed.row, placed.column : placed.column + placed.width_cells] = WORD_IDS[placed.word]
    return grid


KINDS = ("binding", "chart", "topic", "negation", "word")
PAGES_PER_THEME = 8
SCANNED = 0.3
ATTEMPTS = 30
"""Questions drawn before one is given up: a page of one pair has nothing to cross."""


@dataclass(frozen=True, slots=True)
class HasWord:
    """Pages on which a word stands, anywhere: the first thing a model learns, asked in no corpus."""

    word: str

    kind = "word"

    @property
    def text(self) -> str:
        """How the question reads."""
        return self.word

    def grade(self, page: PlannedPage) -> int:
        """How well the page answers."""
        return ANSWERS if page.has_word(self.word) else NOT


TrainingQuestion: TypeAlias = Question | HasWord


@dataclass(frozen=True, slots=True)
class Example:
    """A question about a page, and how well the page answers."""

    question: TrainingQuestion
    grade: int
    is_hard: bool
    """Whether all words of the question stand on the page, so that counting them tells nothing."""


def training_pages(seed: int) -> Iterator[PlannedPage]:
    """Pages without end, each in a look of its own; eight in a row share a theme, as in a document."""
    generator = Random(f"training {seed}")
    lexicon = Lexicon()
    while True:
        scale = Scale(entities=generator.randint(5, 6), measures=generator.randint(4, 5))
        theme = draw_theme(generator, lexicon, Split.TRAINING, scale)
        for _ in range(PAGES_PER_THEME):
            layout = generator.choice(list(LAYOUTS))
            style = draw_style(generator, scanned=SCANNED)
            yield plan_page(layout, theme, style, generator, number=generator.randint(1, 30))


def training_queries(page: PlannedPage, generator: Random, *, kinds: Sequence[str] = KINDS) -> list[Example]:
    """Up to three questions of each kind, none twice.

    One asks for what the page says, one joins words of the page that it does not join, and one has some
    words that the page may lack.
    """
    here = _Pool.of_page(page)
    examples: dict[TrainingQuestion, Example] = {}
    # What answers partly is a trap too: the pair in another year, or beside a chart and not in it.
    with_partial = {"binding", "chart"} if any(fact.form == "chart" for fact in page.facts) else {"binding"}
    for kind in kinds:
        trap = PARTLY if kind in with_partial else NOT
        _add(examples, page, (_said(kind, page, generator) for _ in range(ATTEMPTS)), at_most=ANSWERS)
        for pools in ((here,), (here, EVERYWHERE)):
            joined = (_joined(kind, page, pools, generator) for _ in range(ATTEMPTS))
            _add(examples, page, joined, at_most=trap)
    return list(examples.values())


def joined_words(question: TrainingQuestion) -> tuple[str, str] | None:
    """The combination a question asks for, which belongs to one split; None where it asks for one word."""
    match question:
        case Binding(entity, measure) | ChartLookUp(entity, measure):
            return entity, measure
        case About(topic) | AboutWithout(topic):
            return topic
        case HasWord():
            return None


@dataclass(frozen=True, slots=True)
class _Pool:
    """Words to make questions of."""

    entities: Sequence[str]
    measures: Sequence[str]
    years: Sequence[str]
    fields: Sequence[str]
    subjects: Sequence[str]
    words: Sequence[str]

    @classmethod
    def of_page(cls, page: PlannedPage) -> "_Pool":
        words = sorted({placed.word for placed in page.words} - set(NUMBERS))

        def among(kind: Sequence[str]) -> list[str]:
            return [word for word in words if word in kind]

        return cls(among(ENTITIES), among(MEASURES), among(YEARS), among(FIELDS), among(SUBJECTS), words)


EVERYWHERE = _Pool(
    ENTITIES, MEASURES, YEARS, FIELDS, SUBJECTS, [word for word in PAGE_WORDS if word not in NUMBERS]
)


def _said(kind: str, page: PlannedPage, generator: Random) -> TrainingQuestion:
    """A question that the page answers, at least partly."""
    fact = generator.choice(page.facts)
    topic = generator.choice((page.topic, page.topic, *page.mentions))
    match kind:
        case "binding":
            return Binding(fact.entity, fact.measure, generator.choice((fact.year, "")))
        case "chart":
            charted = [each for each in page.facts if each.form == "chart"]
            fact = generator.choice(charted) if charted else fact
            return ChartLookUp(fact.entity, fact.measure)
        case "topic":
            return About(topic)
        case "negation":
            absent = [word for word in (*ENTITIES, *MEASURES) if not page.has_word(word)]
            return AboutWithout(topic, generator.choice(absent))
        case "word":
            return HasWord(generator.choice(_Pool.of_page(page).words))
        case _:
            raise ValueError(f"kind {kind!r}, wanted one of {', '.join(KINDS)}")


def _joined(kind: str, page: PlannedPage, pools: Sequence[_Pool], generator: Random) -> TrainingQuestion:
    """A question whose words come from any of the pools, each from one of them."""

    def pool() -> _Pool:
        return generator.choice(pools)

    def topic() -> tuple[str, str]:
        return generator.choice(pool().fields), generator.choice(pool().subjects)

    match kind:
        case "binding":
            year = generator.choice((*pool().years, "", ""))
            return Binding(generator.choice(pool().entities), generator.choice(pool().measures), year)
        case "chart":
            return ChartLookUp(generator.choice(pool().entities), generator.choice(pool().measures))
        case "topic":
            return About(topic())
        case "negation":
            # What the page says, spoilt by a word it has; or another topic.
            said = page.topic if len(pools) == 1 else topic()
            chosen = pool()
            return AboutWithout(said, generator.choice((*chosen.entities, *chosen.measures)))
        case _:
            return HasWord(generator.choice(pool().words))


def _add(
    examples: dict[TrainingQuestion, Example],
    page: PlannedPage,
    questions: Iterator[TrainingQuestion],
    *,
    at_most: int,
) -> None:
    """Take the first question that is new, graded `at_most` and free of evaluation's combinations."""
    for question in questions:
        joined = joined_words(question)
        if question in examples or (joined is not None and split_of(*joined) is not Split.TRAINING):
            continue
        grade = question.grade(page)
        if grade <= at_most:
            is_hard = all(page.has_word(word) for word in content_words(question.text))
            examples[question] = Example(question, grade, is_hard)
            return
