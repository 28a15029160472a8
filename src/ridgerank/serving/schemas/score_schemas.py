"""Scoring pairs, as vLLM has it."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from ridgerank.serving.schemas.document_schemas import Document
from ridgerank.serving.schemas.shared_schemas import (
    MAX_DOCUMENTS,
    DeadlineMs,
    Name,
    QueryText,
    RequestModel,
    ResponseModel,
    Usage,
)


class ScoreRequest(RequestModel):
    """Queries and documents to score, as vLLM has it: one query for all documents, or one each."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        json_schema_extra={
            "examples": [{"queries": "operating margin in 2019", "documents": ["report.pdf#3"]}]
        },
    )

    queries: QueryText | Annotated[list[QueryText], Field(min_length=1, max_length=64)]
    documents: Document | Annotated[list[Document], Field(min_length=1, max_length=MAX_DOCUMENTS)]
    model: Name | None = None
    deadline_ms: DeadlineMs = None


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
