"""What a document is about: few entities, measures, years and topics, joined in changing ways.

Because a document has few words, its pages share them, in different combinations. That makes its pages hard
to tell apart by counting words: one page has Norvale's margin, the next has Norvale's output and another's
margin.
"""

from dataclasses import dataclass
from itertools import product
from random import Random

from ridgerank.miniature.vocabulary import (
    ENTITIES,
    FIELDS,
    MEASURES,
    SUBJECTS,
    YEARS,
    Split,
    split_of,
)
from ridgerank.miniature.world import Pair, Topic


@dataclass(frozen=True, slots=True)
class Lexicon:
    """The part of the vocabulary that a corpus uses."""

    entities: tuple[str, ...] = ENTITIES
    measures: tuple[str, ...] = MEASURES
    fields: tuple[str, ...] = FIELDS
    subjects: tuple[str, ...] = SUBJECTS

    def sample(self, generator: Random, *, entities: int, measures: int, topic_words: int) -> "Lexicon":
        """A smaller lexicon; `topic_words` fields and as many subjects."""
        return Lexicon(
            tuple(generator.sample(self.entities, entities)),
            tuple(generator.sample(self.measures, measures)),
            tuple(generator.sample(self.fields, topic_words)),
            tuple(generator.sample(self.subjects, topic_words)),
        )


@dataclass(frozen=True, slots=True)
class Scale:
    """How many words a document has; the fewer, the more its pages resemble each other."""

    entities: int = 5
    measures: int = 4
    topic_words: int = 4
    years: int = 5


@dataclass(frozen=True, slots=True)
class Theme:
    """What a document is about; all its combinations are of one split."""

    pairs: tuple[Pair, ...]
    topics: tuple[Topic, ...]
    years: tuple[str, ...]
    """Consecutive."""

    @property
    def entities(self) -> tuple[str, ...]:
        """The entities of its pairs, each once."""
        return tuple(dict.fromkeys(entity for entity, _ in self.pairs))

    @property
    def measures(self) -> tuple[str, ...]:
        """The measures of its pairs, each once."""
        return tuple(dict.fromkeys(measure for _, measure in self.pairs))


MIN_PAIRS, MIN_TOPICS = 8, 3
"""Fewer would not fill a page, or leave nothing to confuse."""


def draw_theme(generator: Random, lexicon: Lexicon, split: Split, scale: Scale) -> Theme:
    """A theme of the split's combinations; words are drawn again until enough of them may be joined."""
    first_year = generator.randint(0, len(YEARS) - scale.years)
    while True:
        words = lexicon.sample(
            generator, entities=scale.entities, measures=scale.measures, topic_words=scale.topic_words
        )
        pairs = tuple(pair for pair in product(words.entities, words.measures) if split_of(*pair) is split)
        topics = tuple(topic for topic in product(words.fields, words.subjects) if split_of(*topic) is split)
        if len(pairs) >= MIN_PAIRS and len(topics) >= MIN_TOPICS:
            return Theme(pairs, topics, YEARS[first_year : first_year + scale.years])
