"""The records that cross modules: a page, a query, a candidate, a ranking. They know no model and no file."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

from ridgerank.errors import QueryError

if TYPE_CHECKING:
    from PIL.Image import Image

Target: TypeAlias = Literal["margin", "likelihood", "teacher"]
"""What the full model says of a query and a page: yes logit − no logit (eq. 6), or log p(query | page); or
what a teacher other than the model says."""

State: TypeAlias = Literal["last", "mean"]
"""Where a state is read: at the last position (eq. 5), or averaged over the query's positions."""

TARGETS: tuple[Target, ...] = ("margin", "likelihood")
STATES: tuple[State, ...] = ("last", "mean")


def to_json(value: Any) -> Any:  # noqa: ANN401 (whatever JSON holds)
    """A record, or values that hold records, as JSON has them. JSON has no NaN: null stands for it."""
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, Mapping):
        return {key: to_json(part) for key, part in value.items()}
    if isinstance(value, (tuple, list)):
        return [to_json(part) for part in value]
    return None if isinstance(value, float) and math.isnan(value) else value


@dataclass(frozen=True, slots=True, eq=False)
class Page:
    """One page of a document: its image, its text and its names."""

    page_id: str
    """256-bit digest, in hex, of the page's content: the same content has the same id."""
    reference: str
    """The name people use: `report.pdf#3`, pages counted from 1."""
    image: "Image"
    """The page rendered within the backbone's pixel budget, RGB."""
    text: str
    """The text layer, empty where there is none."""


def document_name(reference: str) -> str:
    """The document of a page's reference: `C#/report.pdf` of `C#/report.pdf#3`."""
    return reference.rpartition("#")[0]


@dataclass(frozen=True, slots=True)
class Query:
    """A query, with an id."""

    query_id: str
    text: str
    corpus: str = ""
    """The corpus it belongs to, where queries of several corpora are together; empty where unknown."""
    source: str = ""
    """The page it was made from, by id; empty for a query that somebody asked."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A page the retriever returned, with its score."""

    page_id: str
    score: float


@dataclass(frozen=True, slots=True)
class RankedPage:
    """A page at its final rank, with the scores that put it there."""

    page_id: str
    reference: str
    """The page's first name, such as `report.pdf#3`."""
    fused_score: float
    """(1 − w) z(b) + w z(s), eq. 2: comparable within one ranking only."""
    retriever_score: float
    """b, as the retriever gave it."""
    readout_score: float
    """s, as the readout gave it; NaN if the model did not read the page."""
    retriever_z: float
    """z(b): the retriever score standardized over the candidates, eq. 1."""
    readout_z: float
    """z(s): the readout score standardized over the candidates, eq. 1."""
    retriever_part: float
    """(1 − w) z(b): what the retriever put into the fused score."""
    readout_part: float
    """w z(s): what the readout put into the fused score."""
    rank: int
    """From 1, by fused score."""
    retriever_rank: int
    """From 1, by retriever score."""
    relevance_score: float
    """From 0 to 1, never rising down the list; defined by `reranker.candidates.relevance_scores`."""

    @property
    def reason(self) -> str:
        """One line: the rank before and now, and what each score contributed."""
        if self.rank == self.retriever_rank:
            moved = f"stays at {self.rank}"
        else:
            moved = f"{'up' if self.rank < self.retriever_rank else 'down'} from {self.retriever_rank}"
            moved = f"{moved} to {self.rank}"
        return f"{moved}: retriever {self.retriever_part:+.2f}, readout {self.readout_part:+.2f}"


@dataclass(frozen=True, slots=True)
class ScoredPages:
    """The candidates of one query and both scores of each."""

    page_ids: tuple[str, ...]
    retriever: tuple[float, ...]
    readout: tuple[float, ...]

    @classmethod
    def of_ranking(cls, pages: Sequence[RankedPage]) -> Self:
        """The pages of a ranking, as they come."""
        return cls(
            tuple(page.page_id for page in pages),
            tuple(page.retriever_score for page in pages),
            tuple(page.readout_score for page in pages),
        )


@dataclass(frozen=True, slots=True)
class Latency:
    """The milliseconds of one request, by part."""

    retrieval_ms: float
    """The retriever, and looking up its pages."""
    reading_ms: float
    """Waiting for stored prefixes."""
    compute_ms: float
    """The model."""
    ranking_ms: float
    """Reading out, standardizing, fusing, sorting."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """The answer to one query: pages, best first."""

    query: str
    pages: tuple[RankedPage, ...]
    weight: float
    """w: the readout's share in the fused score; 0 leaves the retriever's order."""
    latency: Latency
    reranked: bool
    """Whether the model has a say in this order; if not, the reasons say which order it is."""
    reasons: tuple[str, ...]
    """What a careful reader should know about this ranking."""


Region: TypeAlias = tuple[float, float, float, float]
"""A part of a page: left, top, right, bottom, from 0 to 1."""


@dataclass(frozen=True, slots=True)
class Passage:
    """A line of a page's text and how much of the attention was on it."""

    text: str
    weight: float
    """The attention on its tokens."""
    region: Region | None
    """Where it stands on the page; None where its document is gone or its words were not recognized."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Where a query's last state looked: its attention over a stored page, averaged over heads and layers."""

    query: str
    page_id: str
    reference: str
    """The page's first name, such as `report.pdf#3`."""
    layers: tuple[int, int]
    """The layers averaged over: the first, and one past the last."""
    grid: tuple[int, int]
    """Rows and columns of all visual positions of the page, kept or not."""
    kept: tuple[int, ...]
    """The visual positions the store kept, counted along the rows of the grid."""
    weights: tuple[float, ...]
    """The attention on each of these; they add up to `page_share`."""
    regions: tuple[Region | None, ...]
    """What part of the page each of these stands for, None for a token that has no place on it."""
    page_share: float
    """The attention on the page image; the three shares add up to 1."""
    instruction_share: float
    """The attention on the fixed words before and behind the image."""
    query_share: float
    """The attention on the query's own tokens and the cue for the answer."""
    passages: tuple[Passage, ...] = ()
    """The lines the model read, top to bottom; empty where it reads the page's image."""


MAX_QUERY_CHARACTERS = 2000
"""A longer query is refused: it runs with all candidates in one pass, and memory grows with its square."""


def validate_query(text: str) -> str:
    """The query without white space around it; an empty or too long query is refused."""
    if not isinstance(text, str):
        raise QueryError(f"a query that is {describe_json(text)}; expected text")
    query = text.strip()
    if not is_unicode(query):
        raise QueryError("a query with bytes that are not UTF-8, or half a character; write it as UTF-8 text")
    if not query:
        raise QueryError("query must not be empty")
    if len(query) > MAX_QUERY_CHARACTERS:
        raise QueryError(
            f"a query of {len(query):,} characters, expected at most {MAX_QUERY_CHARACTERS:,}; "
            "ask for what matters in it, or split it"
        )
    return query


def is_unicode(text: str) -> bool:
    """Whether every character can be written as UTF-8; what stands for other bytes cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def describe_json(value: object) -> str:
    """What JSON calls a value that is not a text."""
    kinds = {type(None): "null", bool: "true or false", int: "a number", float: "a number", list: "a list"}
    return kinds.get(type(value), f"of type {type(value).__name__}")
