"""Judging pages, and what judgements make of the weight."""

from typing import Annotated

from pydantic import ConfigDict, Field, StringConstraints

from ridgerank.serving.schemas.shared_schemas import (
    PAGE_ID,
    DeadlineMs,
    Name,
    QueryText,
    RequestModel,
    ResponseModel,
)

JudgeName = Annotated[str, StringConstraints(strip_whitespace=True, max_length=60, pattern=r"^[^\n\r\t]*$")]


class JudgementRequest(RequestModel):
    """What somebody says of a page."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        json_schema_extra={
            "examples": [
                {"query": "operating margin in 2019", "page": "report.pdf#3", "grade": 2, "judge": "ada"}
            ]
        },
    )

    query: QueryText
    page: Name
    grade: int | None = Field(
        ge=0, le=2, description="2 relevant, 1 partly, 0 not; null takes back what the judge said before."
    )
    judge: JudgeName = Field(default="", description="Who says so; empty for nobody in particular.")
    deadline_ms: DeadlineMs = None


class WeightPoint(ResponseModel):
    """A weight after some judged queries."""

    queries: int = Field(ge=0)
    weight: float = Field(ge=0, le=1)
    weight_interval: tuple[float, float] = Field(description="95 %.")


class ProposedPage(ResponseModel):
    """A page worth judging next."""

    page_id: str = Field(pattern=PAGE_ID)
    reference: str


class JudgementsResponse(ResponseModel):
    """Judgements of one query and of all, and what they make of the weight."""

    query: str
    own: dict[str, int] = Field(description="Page id → what this judge says.")
    merged: dict[str, int] = Field(description="Page id → the grade that stands for all judges'.")
    judgements: int
    queries: int
    judges: int
    deployed: WeightPoint = Field(description="The weight this server ranks with.")
    steps: list[WeightPoint] = Field(
        description="What `ridgerank calibrate --weight-only` would deploy, query by query as they were "
        "judged; the first is the estimate without judgements."
    )
    note: str
    next_pages: list[ProposedPage] = Field(
        description="First pages of both orders that nobody judged, the most disputed first."
    )
    next_queries: list[str]
