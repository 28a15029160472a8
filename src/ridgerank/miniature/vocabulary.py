"""All words of the miniature, and the rule that keeps what is evaluated apart from what is trained on.

Single words are shared; what words are joined with is not. Every pair of an entity and a measure, and every
pair of topic words, belongs to one of two splits, decided by its own letters and nothing else.
"""

import hashlib
from enum import StrEnum


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
