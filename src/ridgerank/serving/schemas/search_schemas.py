"""Searching the store, and explaining a page."""

from typing import Annotated

from pydantic import ConfigDict, Field

from ridgerank.records import Region
from ridgerank.serving.schemas.shared_schemas import (
    MAX_DOCUMENTS,
    PAGE_ID,
    DeadlineMs,
    LatencyMs,
    MinScore,
    Name,
    QueryText,
    RequestModel,
    ResponseModel,
    WeightSource,
)

Label = str | bool | int | float


class SearchRequest(RequestModel):
    """A query to retrieve and rerank for."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        json_schema_extra={"examples": [{"query": "operating margin in 2019", "k": 20, "top_n": 5}]},
    )

    query: QueryText
    k: int = Field(default=20, ge=1, le=MAX_DOCUMENTS, description="Pages the retriever finds.")
    top_n: int = Field(default=5, ge=1, description="How many of these to return, best first.")
    documents: list[Name] = Field(
        default=[], max_length=100, description="Search only documents whose name fits one of these globs."
    )
    metadata: dict[str, Label | Annotated[list[Label], Field(max_length=20)]] = Field(
        default={},
        max_length=20,
        description="Search only documents of which metadata.jsonl says this, and of a list all of it.",
    )
    min_score: MinScore = None
    lines: bool = Field(default=False, description="Whether each result has the line that matches best.")
    deadline_ms: DeadlineMs = None


class LineReport(ResponseModel):
    """A line of a page's text with the query's words in it."""

    text: str
    marks: list[tuple[int, int]] = Field(description="First character of each word, and one past its last.")


class SearchResult(ResponseModel):
    """A page with its rank and both scores it was ranked by."""

    rank: int = Field(ge=1)
    retriever_rank: int = Field(ge=1)
    page_id: str = Field(pattern=PAGE_ID)
    reference: str
    relevance_score: float = Field(
        ge=0,
        le=1,
        description="From 0 to 1, never rising down the results: the fused order at the level of the margins "
        "that the full model is predicted to give; only a rank if the calibration predicts no margin.",
    )
    fused_score: float = Field(description="(1 − w) · retriever_z + w · readout_z, eq. 2.")
    retriever_score: float
    readout_score: float
    retriever_z: float = Field(description="The retriever score standardized over the k candidates.")
    readout_z: float = Field(description="The readout score standardized over the k candidates.")
    image_url: str
    thumbnail_url: str
    reason: str
    line: LineReport | None = Field(
        description="The line with most of the query's words; null unless `lines`, or without page text."
    )


class SearchResponse(ResponseModel):
    """Pages, best first."""

    id: str
    model: str
    query: str
    weight: float = Field(ge=0, le=1)
    weight_source: WeightSource
    note: str
    results: list[SearchResult]
    latency_ms: LatencyMs


class ExplainRequest(RequestModel):
    """A query and the stored page to explain."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        json_schema_extra={"examples": [{"query": "operating margin in 2019", "page": "report.pdf#3"}]},
    )

    query: QueryText
    page: Name
    layer: int | None = Field(default=None, ge=0, description="One stored layer; the mean of all by default.")
    deadline_ms: DeadlineMs = None


class PassageReport(ResponseModel):
    """A line of the page's text."""

    text: str
    weight: float = Field(description="The attention on its tokens.")
    region: Region | None = Field(description="Where it stands on the page; null where that is not known.")


class ExplainResponse(ResponseModel):
    """Where the query's last state looked on the page."""

    query: str
    page_id: str = Field(pattern=PAGE_ID)
    reference: str
    layers: tuple[int, int] = Field(description="The first, and one past the last.")
    grid: tuple[int, int] = Field(description="Rows and columns of all visual positions.")
    kept: list[int] = Field(description="The visual positions stored, counted along the rows of the grid.")
    weights: list[float] = Field(description="The attention on each of these; they add up to page_share.")
    regions: list[Region | None] = Field(
        description="Left, top, right, bottom of each of these, from 0 to 1; of a model that reads text, the "
        "box of the token's word, null where that is not known."
    )
    passages: list[PassageReport] = Field(
        description="Lines of the page and the attention on them; empty where the model reads the image."
    )
    page_share: float
    instruction_share: float
    query_share: float
