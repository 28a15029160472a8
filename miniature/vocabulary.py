"""The words of the miniature, the rule that keeps evaluation apart from training, the themes of documents.

Single words are shared; what words are joined with is not. Every pair of an entity and a measure, and every
pair of topic words, belongs to one of two splits, decided by its own letters and nothing else.

A document has few entities, measures, years and topics, joined in changing ways, so that its pages share
words and are hard to tell apart by counting them.
"""

import hashlib
from dataclasses import dataclass
from enum import StrEnum
from itertools import product
from random import Random

from miniature.world import Pair, Topic


class Split(StrEnum):
    """Whom a combination of words belongs to."""

    TRAINING = "training"
    EVALUATION = "evaluation"


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


ENTITIES = _words(
    """
    Adrik Astrel Belmor Bolvan Brenick Caldur Cremis Dorwyn Druska Elsane Ervand Fenrow Galtis Gruvo Harvok
    Hintar Ilmara Jorund Juvan Kestra Koldy Lavrin Lumeth Mardal Mivora Nelvo Norvale Obrant Orvane Pelhar
    Prusk Quorin Rastel Rhovan Selmar Skarn Tarvo Tovik Ulmen Uzrel Varlis Vexmor Welka Wistal Yelda Yorrin
    Zenkar Zubal
    """
)
"""Invented names."""
MEASURES = _words(
    """
    cash costs debt energy exports imports margin orders output profit revenue staff traffic volume wages
    yield
    """
)
YEARS = tuple(str(year) for year in range(2015, 2025))
FIELDS = _words(
    """
    alpine arctic coastal desert digital global island local marine medical private public river rural solar
    urban
    """
)
"""First words of topics."""
SUBJECTS = _words(
    """
    banking bridges clinics farming fishing forests freight grids housing markets mining ports rail schools
    storage tourism
    """
)
"""Second words of topics."""
NUMBERS = tuple(str(number) for number in range(1, 100))
"""Values, axis labels and page numbers."""

TOPIC_LINES = (
    "demand for {topic} grows",
    "plans for {topic} slow",
    "more funds for {topic}",
    "the board backs {topic}",
    "{topic} still leads",
    "what {topic} needs",
    "{topic} after the storm",
    "debate over {topic}",
)
ENTITY_LINES = (
    "a talk with {entity}",
    "{entity} opens two sites",
    "our visit at {entity}",
    "{entity} joins the group",
)
MEASURE_LINES = ("next year for {measure}", "{measure} remains a worry", "all eyes are at {measure}")
PLAIN_LINES = (
    "prices held firm again",
    "all figures are audited",
    "see the notes below",
    "supply is tight all year",
    "weather hit the harvest",
    "the outlook is steady",
    "next steps and open points",
    "draft for the readers",
)
LINES = (*TOPIC_LINES, *ENTITY_LINES, *MEASURE_LINES, *PLAIN_LINES)
"""Lines of text; each names at most one thing, so that no line binds an entity to a measure."""
HEADINGS = ("annual review", "status paper", "working draft", "monthly brief", "field notes")
FILLER = tuple(
    sorted({word for line in (*LINES, *HEADINGS) for word in line.split() if not word.startswith("{")})
)

PAGE_WORDS = (*ENTITIES, *MEASURES, *YEARS, *FIELDS, *SUBJECTS, *FILLER, *NUMBERS)
"""Every word that can stand on a page."""
QUERY_WORDS = ("of", "in", "about", "without", "chart")
"""The grammar of queries; none of them stands on a page."""


def split_of(first: str, second: str) -> Split:
    """Whom the combination of two words belongs to: half of all combinations to each split."""
    digest = hashlib.blake2s(f"{first} {second}".encode()).digest()
    return Split.EVALUATION if digest[0] % 2 else Split.TRAINING


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
