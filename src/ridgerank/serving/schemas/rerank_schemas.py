"""Reranking, in the shape of Cohere and Jina, and in that of TEI."""

from pydantic import ConfigDict, Field, model_validator

from ridgerank.serving.schemas.document_schemas import Document, Query, ReturnedDocument, Scores
from ridgerank.serving.schemas.foreign_fields import ForeignFields
from ridgerank.serving.schemas.shared_schemas import (
    MAX_DOCUMENTS,
    PAGE_ID,
    DeadlineMs,
    LatencyMs,
    MinScore,
    Name,
    ResponseModel,
    Text,
    Usage,
    WeightSource,
)


class RerankRequest(ForeignFields):
    """Documents to put in order: `documents`, TEI's `texts` or Elasticsearch's `input`."""

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

    query: Query
    documents: Document | list[Document] | None = None
    texts: list[Text] | None = Field(
        default=None, min_length=1, max_length=MAX_DOCUMENTS, description="TEI's word for documents."
    )
    input: Document | list[Document] | None = Field(
        default=None, description="Elasticsearch's word for documents."
    )
    model: Name | None = Field(
        default=None, description="Any name: a server has one model, and warns where a request names another."
    )
    top_n: int | None = Field(default=None, ge=0, description="How many results; all by default, and for 0.")
    return_documents: bool | None = Field(
        default=None, description="Send each document back with its result; not by default."
    )
    retriever_scores: Scores | None = None
    min_score: MinScore = None
    deadline_ms: DeadlineMs = None
    raw_scores: bool = Field(
        default=False, description="TEI, infinity: the fused score instead of the one in [0, 1]."
    )
    use_activation: bool | None = Field(
        default=None, description="vLLM: where false, the log odds of the score in [0, 1] instead of it."
    )
    return_text: bool = Field(default=False, description="TEI's word for return_documents.")
    request_id: Name | None = Field(default=None, description="vLLM: the id that the answer gets.")

    @property
    def sent_documents(self) -> list[Document]:
        """The documents, under whatever word they were sent."""
        for documents in (self.documents, self.input):
            if documents is not None:
                return documents if isinstance(documents, list) else [documents]
        return list(self.texts or [])

    @model_validator(mode="after")
    def _check_documents(self) -> "RerankRequest":
        present = [field for field in ("documents", "texts", "input") if getattr(self, field) is not None]
        if len(present) != 1:
            found = " and ".join(present) or "no documents"
            raise ValueError(f"{found}; wanted either documents, or texts, or input")
        count = len(self.sent_documents)
        if not 1 <= count <= MAX_DOCUMENTS:
            raise ValueError(f"{count} documents; wanted at least one and {MAX_DOCUMENTS:,} at most")
        if self.retriever_scores is not None and len(self.retriever_scores) != count:
            raise ValueError(
                f"{len(self.retriever_scores)} retriever scores for {count} documents; wanted one each"
            )
        return self


class RerankResult(ResponseModel):
    """One document, with the scores it was ranked by."""

    index: int = Field(ge=0, description="Its index in the request, from 0.")
    relevance_score: float = Field(
        description="From 0 to 1, never rising down the results: the fused order at the level of the margins "
        "that the full model is predicted to give; only a rank if the calibration predicts no margin. "
        "Its log odds if use_activation is false.",
    )
    document: ReturnedDocument | None = None
    page_id: str = Field(pattern=PAGE_ID)
    reference: str
    fused_score: float
    retriever_score: float | None = Field(description="b; null where there was none.")
    readout_score: float = Field(description="s.")


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
    latency_ms: LatencyMs


class TeiResult(ResponseModel):
    """One result in TEI's shape."""

    index: int = Field(ge=0)
    score: float
    text: str | None = None
