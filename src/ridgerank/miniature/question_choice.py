"""The questions of a corpus: each has an answer, and pages that only look like one.

A page looks like an answer when it has at least as many of the question's words as the answers have, and
yet does not answer. Counting words cannot tell the two apart.
"""

from collections.abc import Iterator, Mapping, Sequence
from random import Random

from ridgerank.errors import MiniatureError
from ridgerank.miniature.question_kinds import (
    ANSWERS,
    About,
    AboutWithout,
    Binding,
    ChartLookUp,
    Question,
    content_words,
)
from ridgerank.miniature.world import PlannedPage, Topic

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
