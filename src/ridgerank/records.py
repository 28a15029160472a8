"""The words that cross modules: a page, a query, a candidate. They know no model and no file."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL.Image import Image


@dataclass(frozen=True, slots=True, eq=False)
class Page:
    """One page of a document, as people see it and as it is named."""

    page_id: str
    """256-bit digest, in hex, of what the page was made from: the same content has the same id."""
    reference: str
    """The name people use: `report.pdf#3`, pages counted from 1."""
    image: "Image"
    """The page rendered within the backbone's pixel budget, RGB."""
    text: str
    """The text layer, empty where there is none."""


@dataclass(frozen=True, slots=True)
class Query:
    """What someone asks."""

    query_id: str
    text: str


@dataclass(frozen=True, slots=True)
class Candidate:
    """A page the retriever returned, with its score."""

    page_id: str
    score: float
