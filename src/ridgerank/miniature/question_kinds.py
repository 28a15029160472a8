"""Questions about pages: how they read, and how well a page answers them, computed from its facts.

    margin of Norvale in 2019             binding, with a year
    margin of Norvale                     binding
    chart of margin of Norvale            chart look-up
    about solar storage                   topic
    about solar storage without Norvale   negation of one word

Grade 2 answers the question, 1 answers it partly, 0 does not. All words of a question may stand on a page
that does not answer it: what counts is which of them belong together.
"""

from dataclasses import dataclass
from typing import TypeAlias

from ridgerank.miniature.vocabulary import QUERY_WORDS
from ridgerank.miniature.world import PlannedPage, Topic

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
