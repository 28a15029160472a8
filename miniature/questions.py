"""Questions about pages: how they read, and how well a page answers them, computed from its facts.

    margin of Norvale in 2019             binding, with a year
    margin of Norvale                     binding
    chart of margin of Norvale            chart look-up
    about solar storage                   topic
    about solar storage without Norvale   negation of one word

Grade 2 answers the question, 1 answers it partly, 0 does not. All words of a question may stand on a page
that does not answer it: what counts is which of them belong together.

A corpus' questions each have an answer, and pages that only look like one: pages with at least as many of the
question's words as the answers have. Counting words cannot tell the two apart.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import TypeAlias

from miniature import MiniatureError
from miniature.vocabulary import QUERY_WORDS
from miniature.world import PlannedPage, Topic

ANSWERS, PARTLY, NOT = 2, 1, 0


@dataclass(frozen=True, slots=True)
class Binding:
    """The measure of an entity, in a year if one is named; that pair in other years answers partly."""

    entity: str
    measure: str
    year: str = ""

    kind = "binding"

    @property
    def text(self) -> str:
        """How the question reads."""
        when = f" in {self.year}" if self.year else ""
        return f"{self.measure} of {self.entity}{when}"

    def grade(self, page: PlannedPage) -> int:
        """How well the page answers."""
        years = [
            fact.year for fact in page.facts if fact.entity == self.entity and fact.measure == self.measure
        ]
        if not years:
            return NOT
        return ANSWERS if not self.year or self.year in years else PARTLY


@dataclass(frozen=True, slots=True)
class ChartLookUp:
    """A chart of the measure of an entity; the same in a table or a bullet answers partly."""

    entity: str
    measure: str

    kind = "chart"

    @property
    def text(self) -> str:
        """How the question reads."""
        return f"chart of {self.measure} of {self.entity}"

    def grade(self, page: PlannedPage) -> int:
        """How well the page answers."""
        forms = {
            fact.form for fact in page.facts if fact.entity == self.entity and fact.measure == self.measure
        }
        if not forms:
            return NOT
        return ANSWERS if "chart" in forms else PARTLY


@dataclass(frozen=True, slots=True)
class About:
    """Pages with this topic for a title; a line of text that names it answers partly."""

    topic: Topic

    kind = "topic"

    @property
    def text(self) -> str:
        """How the question reads."""
        return f"about {' '.join(self.topic)}"

    def grade(self, page: PlannedPage) -> int:
        """How well the page answers."""
        if page.topic == self.topic:
            return ANSWERS
        return PARTLY if self.topic in page.mentions else NOT


@dataclass(frozen=True, slots=True)
class AboutWithout:
    """The same, as long as one word stands nowhere on the page."""

    topic: Topic
    without: str

    kind = "negation"

    @property
    def text(self) -> str:
        """How the question reads."""
        return f"{About(self.topic).text} without {self.without}"

    def grade(self, page: PlannedPage) -> int:
        """How well the page answers."""
        return NOT if page.has_word(self.without) else About(self.topic).grade(page)


Question: TypeAlias = Binding | ChartLookUp | About | AboutWithout


def content_words(text: str) -> tuple[str, ...]:
    """The words of a question's text that can stand on a page."""
    return tuple(word for word in text.split() if word not in QUERY_WORDS)


MAX_ANSWERS = 6
"""More pages than this would make a question easy by chance."""
PATIENCE = 20
"""Questions tried for every page of a corpus, before too few of a kind have been found."""


def grades(question: Question, pages: Mapping[str, PlannedPage]) -> dict[str, int]:
    """Page reference → grade, over all pages, of those that answer at least partly."""
    graded = ((reference, question.grade(page)) for reference, page in pages.items())
    return {reference: grade for reference, grade in graded if grade}


def choose_questions(
    pages: Mapping[str, PlannedPage], counts: Mapping[str, int], generator: Random, *, lookalikes: int
) -> dict[Question, dict[str, int]]:
    """As many questions of each kind as `counts` says, with their grades, in an arbitrary order.

    Every one has 1 to 6 answers and at least `lookalikes` pages that look like one.
    """
    words = {reference: {placed.word for placed in page.words} for reference, page in pages.items()}
    chosen: dict[Question, dict[str, int]] = {}
    for kind, count in counts.items():
        accepted = 0
        for question in _propose_questions(kind, list(pages.values()), generator):
            graded = grades(question, pages)
            if question not in chosen and _is_hard(question, graded, words, lookalikes):
                chosen[question] = graded
                accepted += 1
            if accepted == count:
                break
        else:
            raise MiniatureError(
                f"{accepted} {kind} questions, wanted {count}; ask for fewer, or draw more pages"
            )
    order = list(chosen)
    generator.shuffle(order)
    return {question: chosen[question] for question in order}


def _propose_questions(kind: str, pages: Sequence[PlannedPage], generator: Random) -> Iterator[Question]:
    """Questions that some page answers, many times over; they may repeat."""
    titled: dict[Topic, list[PlannedPage]] = {}
    for page in pages:
        titled.setdefault(page.topic, []).append(page)
    for _ in range(PATIENCE * len(pages)):
        page = generator.choice(pages)
        fact = generator.choice(page.facts)
        question: Question
        match kind:
            case "binding":
                question = Binding(fact.entity, fact.measure, generator.choice((fact.year, fact.year, "")))
            case "chart":
                question = ChartLookUp(fact.entity, fact.measure)
            case "topic":
                question = About(page.topic)
            case "negation":
                other = generator.choice(generator.choice(titled[page.topic]).facts)
                question = AboutWithout(page.topic, generator.choice((other.entity, other.measure)))
            case _:
                raise ValueError(f"kind {kind!r}, wanted binding, chart, topic or negation")
        if question.grade(page) == ANSWERS:
            yield question


def _is_hard(
    question: Question, graded: Mapping[str, int], words: Mapping[str, set[str]], lookalikes: int
) -> bool:
    answers = [reference for reference, grade in graded.items() if grade == ANSWERS]
    if not 1 <= len(answers) <= MAX_ANSWERS:
        return False
    query_words = set(content_words(question.text))
    overlap = {reference: len(query_words & words[reference]) for reference in words}
    most = max(overlap[reference] for reference in answers)
    alike = sum(overlap[reference] >= most and reference not in answers for reference in words)
    return alike >= lookalikes
