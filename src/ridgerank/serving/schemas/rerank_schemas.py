"""Reranking, in the shape of Cohere and Jina, and in that of TEI."""

from typing import Literal

from pydantic import ConfigDict, Field, model_validator

from ridgerank.serving.schemas.document_schemas import Document, ReturnedDocument, Scores
from ridgerank.serving.schemas.shared_schemas import (
    MAX_DOCUMENTS,
    PAGE_ID,
    Answered,
    DeadlineMs,
    LatencyMs,
    MinScore,
    Name,
    Probability,
    QueryText,
    RequestModel,
    ResponseModel,
    Text,
    Usage,
    WeightSource,
)


class RerankRequest(RequestModel):
    """Documents to put in order: either `documents`, or `texts` as TEI has it."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        json_schema_extra={
            "examples": [
                {
                    "model": "ridgerank",
                    "query": "operating margin in 2019",
                    "documents": ["report.pdf#3", "report.pdf#4"],
                    "top_n": 2,
                }
            ]
        },
    )

    query: QueryText
    documents: list[Document] | None = Field(default=None, min_length=1, max_length=MAX_DOCUMENTS)
    texts: list[Text] | None = Field(
        default=None, min_length=1, max_length=MAX_DOCUMENTS, description="TEI's word for documents."
    )
    model: Name | None = Field(
        default=None, description="Any name: a server has one model, and warns where a request names another."
    )
    top_n: int | None = Field(default=None, ge=1, description="How many results; all by default.")
    return_documents: bool = Field(default=False, description="Send each document back with its result.")
    retriever_scores: Scores | None = None
    min_score: MinScore = None
    deadline_ms: DeadlineMs = None
    raw_scores: bool = Field(default=False, description="TEI: the fused score instead of the one in [0, 1].")
    return_text: bool = Field(default=False, description="TEI's word for return_documents.")
    # Fields of other servers that mean nothing for pages: accepted, with a warning that they are not used.
    max_tokens_per_doc: int | None = Field(default=None, ge=1)
    max_chunks_per_doc: int | None = Field(default=None, ge=1)
    rank_fields: list[Name] | None = Field(default=None, max_length=64)
    priority: int | None = None
    truncate: bool | None = None
    truncation_direction: Literal["left", "right", "Left", "Right"] | None = None
    truncate_prompt_tokens: int | None = None
    truncation: bool | None = None
    return_embeddings: Literal[False] | None = None
    user: Name | None = None

    @model_validator(mode="after")
    def _check_documents(self) -> "RerankRequest":
        if (self.documents is None) == (self.texts is None):
            raise ValueError("wanted either documents or texts")
        count = len(self.documents or self.texts or [])
        if self.retriever_scores is not None and len(self.retriever_scores) != count:
            raise ValueError(
                f"{len(self.retriever_scores)} retriever scores for {count} documents; wanted one each"
            )
        return self


class RerankResult(ResponseModel):
    """One document, with the scores it was ranked by."""

    index: int = Field(ge=0, description="Its index in the request, from 0.")
    relevance_score: float = Field(
        ge=0,
        le=1,
        description="The fused score mapped to [0, 1], in its order: for one list, not across queries.",
    )
    document: ReturnedDocument | None = None
    page_id: str = Field(pattern=PAGE_ID)
    reference: str
    fused_score: float
    retriever_score: float | None = Field(description="b; null where there was none.")
    readout_score: float = Field(description="s.")
    probability: Probability


class ApiVersion(ResponseModel):
    """The version of the API that was called."""

    version: str


class BilledUnits(ResponseModel):
    """Nothing is billed; clients expect the field."""

    search_units: float = 0


class Meta(ResponseModel):
    """What Cohere's clients read besides the results."""

    api_version: ApiVersion
    billed_units: BilledUnits = BilledUnits()
    warnings: list[str] = Field(description="What a careful caller should know; empty if there is nothing.")


class RerankResponse(ResponseModel):
    """Results, best first."""

    id: str
    model: str
    results: list[RerankResult]
    usage: Usage
    meta: Meta
    weight: float = Field(ge=0, le=1, description="w: the readout's share in the fused score.")
    weight_source: WeightSource
    note: str
    answered: Answered
    latency_ms: LatencyMs


class TeiResult(ResponseModel):
    """One result in TEI's shape."""

    index: int = Field(ge=0)
    score: float
    text: str | None = None
