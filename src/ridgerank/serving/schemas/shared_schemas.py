"""Types and limits that several requests and responses share."""

from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, StrictFloat, StringConstraints

from ridgerank.queries import MAX_CHARACTERS

MAX_DOCUMENTS = 1000
"""Per request; a server may allow fewer."""
MAX_NAME = 1024
MAX_TEXT = 20_000
MAX_DATA_URI = 30_000_000
PAGE_ID = r"^[0-9a-f]{64}$"

Text = Annotated[str, StringConstraints(min_length=1, max_length=MAX_TEXT, pattern=r"\S")]
Name = Annotated[str, StringConstraints(min_length=1, max_length=MAX_NAME, pattern=r"\S")]
DataUri = Annotated[str, StringConstraints(min_length=5, max_length=MAX_DATA_URI)]
QueryText = Annotated[
    str,
    StringConstraints(min_length=1, max_length=MAX_CHARACTERS, pattern=r"\S"),
    Field(description="What to look for.", examples=["operating margin in 2019"]),
]
Score = Annotated[float, Field(allow_inf_nan=False)]
DeadlineMs = Annotated[
    int | None,
    Field(ge=1, le=3_600_000, description="Milliseconds after which to give up; the server has a limit too."),
]

MinScore = Annotated[
    StrictFloat | None,  # true is no number
    Field(
        ge=0,
        le=1,
        description="Leave out pages whose relevance_score is below this; refused if the calibration "
        "predicts no margin, because its scores are then only ranks.",
    ),
]


class RequestModel(BaseModel):
    """The base of everything a caller sends."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ResponseModel(BaseModel):
    """The base of everything the server sends."""

    model_config = ConfigDict(extra="forbid", frozen=True)


WeightSource: TypeAlias = Literal["calibration", "readout_alone"]
"""Where w came from: calibrated, or 1 because there were no retriever scores."""


class LatencyMs(ResponseModel):
    """Where the time of a request went, in milliseconds."""

    queue: float = Field(description="Waiting in the queue.")
    retrieval: float
    reading: float = Field(description="Waiting for stored prefixes.")
    compute: float = Field(description="The model; a shared pass counts in full for each request.")
    ranking: float


class Usage(ResponseModel):
    """What a request cost."""

    prompt_tokens: int = Field(ge=0, description="As total_tokens: nothing is generated.")
    total_tokens: int = Field(ge=0, description="Tokens the model ran: those of the query, once per page.")
