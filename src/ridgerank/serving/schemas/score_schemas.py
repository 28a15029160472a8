"""Scoring pairs, as vLLM has it."""

from typing import Literal, TypeAlias

from pydantic import ConfigDict, Field, model_validator

from ridgerank.serving.schemas.document_schemas import Document, Query
from ridgerank.serving.schemas.foreign_fields import ForeignFields
from ridgerank.serving.schemas.shared_schemas import (
    MAX_DOCUMENTS,
    DeadlineMs,
    Name,
    ResponseModel,
    Usage,
)

MAX_QUERIES = 64
Queries: TypeAlias = Query | list[Query]
Documents: TypeAlias = Document | list[Document]
_WORDS = (("queries", "documents"), ("queries", "items"), ("text_1", "text_2"), ("data_1", "data_2"))


class ScoreRequest(ForeignFields):
    """Queries and documents to score, as vLLM has it: one query for all documents, or one each."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        json_schema_extra={
            "examples": [{"queries": "operating margin in 2019", "documents": ["report.pdf#3"]}]
        },
    )

    queries: Queries | None = None
    documents: Documents | None = None
    items: Documents | None = Field(default=None, description="Another word for documents.")
    text_1: Queries | None = Field(default=None, description="An older word for queries, with text_2.")
    text_2: Documents | None = None
    data_1: Queries | None = Field(default=None, description="Another word for queries, with data_2.")
    data_2: Documents | None = None
    model: Name | None = None
    request_id: Name | None = Field(default=None, description="The id that the answer gets.")
    use_activation: bool | None = Field(
        default=None, description="Not used: a score is as the readout has it."
    )
    deadline_ms: DeadlineMs = None

    @property
    def pair_lists(self) -> tuple[list[Query], list[Document]]:
        """Queries and documents, under whatever words they were sent."""
        first, second = self._words()
        queries, documents = getattr(self, first), getattr(self, second)
        return (
            queries if isinstance(queries, list) else [queries],
            documents if isinstance(documents, list) else [documents],
        )

    @model_validator(mode="after")
    def _check_pairs(self) -> "ScoreRequest":
        self._words()
        queries, documents = self.pair_lists
        if not 1 <= len(queries) <= MAX_QUERIES or not 1 <= len(documents) <= MAX_DOCUMENTS:
            raise ValueError(
                f"{len(queries)} queries and {len(documents)} documents; wanted 1 to {MAX_QUERIES} queries "
                f"and 1 to {MAX_DOCUMENTS:,} documents"
            )
        if len(queries) not in (1, len(documents)):
            raise ValueError(
                f"{len(queries)} queries for {len(documents)} documents; wanted one query, or one each"
            )
        return self

    def _words(self) -> tuple[str, str]:
        """The two fields that hold queries and documents."""
        present = {field for pair in _WORDS for field in pair if getattr(self, field) is not None}
        for pair in _WORDS:
            if present == set(pair):
                return pair
        raise ValueError(
            f"{', '.join(sorted(present)) or 'neither queries nor documents'}; wanted queries with documents "
            "(or items), or text_1 with text_2, or data_1 with data_2"
        )


class PairScore(ResponseModel):
    """One pair's score."""

    index: int = Field(ge=0)
    object: Literal["score"] = "score"
    score: float = Field(description="The readout score s of this pair alone: it depends on no other page.")


class ScoreResponse(ResponseModel):
    """Scores in the order of the request."""

    id: str
    object: Literal["list"] = "list"
    created: int
    model: str
    data: list[PairScore]
    usage: Usage
    warnings: list[str] = Field(default=[], description="What a careful caller should know.")
