"""What goes over the wire: requests and answers of every endpoint. Knows no model and no queue.

The rerank schema is the one people call already: Cohere's (v1, v2), Jina's and vLLM's agree on its core, and
TEI's `texts` is taken too. Our own extensions are optional fields of a request and further fields of an
answer. A field nobody knows is refused: a dial that is dropped in silence is worse than an error.
"""

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from ridgerank.queries import MAX_CHARACTERS
from ridgerank.records import State, Target

MAX_DOCUMENTS = 1000
"""Of a request, whatever a server allows; it may allow fewer."""
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
    Field(ge=1, le=3_600_000, description="Give up after so many milliseconds; the server has a limit too."),
]


class Request(BaseModel):
    """Whatever a caller sends."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Answer(BaseModel):
    """Whatever the server sends."""

    model_config = ConfigDict(extra="forbid", frozen=True)


# --- documents of a rerank request ---------------------------------------------------------------------


class PageDocument(Request):
    """A stored page, by id or reference."""

    page: Name = Field(examples=["report.pdf#3"])


class IdDocument(Request):
    """A stored page, by id or reference, under the name other clients use."""

    id: Name


class TextDocument(Request):
    """A text; like a bare string it may name a stored page."""

    text: Text


class ImageDocument(Request):
    """A page as an image: a data URI. Remote addresses are never fetched."""

    image: DataUri = Field(examples=["data:image/png;base64,iVBORw0KGgo…"])


class ImageUrl(Request):
    """The address of an image, in the words of vLLM and OpenAI; only data URIs are taken."""

    url: DataUri
    detail: Literal["auto", "low", "high"] | None = None


class TextPart(Request):
    """A text among the parts of a document."""

    type: Literal["text"]
    text: Text


class ImagePart(Request):
    """An image among the parts of a document."""

    type: Literal["image_url"]
    image_url: ImageUrl


class PartsDocument(Request):
    """A document in parts, as vLLM has it: one image, or one text."""

    content: list[Annotated[TextPart | ImagePart, Field(discriminator="type")]] = Field(
        min_length=1, max_length=1
    )


Document: TypeAlias = (
    Annotated[str, StringConstraints(min_length=1, max_length=MAX_DATA_URI, pattern=r"\S")]
    | PageDocument
    | IdDocument
    | TextDocument
    | ImageDocument
    | PartsDocument
)
"""A stored page, a text, or an image as a data URI."""

Scores: TypeAlias = Annotated[
    list[Score],
    Field(
        max_length=MAX_DOCUMENTS,
        description="The first stage's score of each document, in their order: an extension of ours.",
    ),
]


# --- rerank ------------------------------------------------------------------------------------------------


class RerankRequest(Request):
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
        default=None, description="Any name: a server has one model, and says so where another was asked for."
    )
    top_n: int | None = Field(default=None, ge=1, description="How many results; all unless said.")
    return_documents: bool = Field(default=False, description="Send each document back with its result.")
    retriever_scores: Scores | None = None
    deadline_ms: DeadlineMs = None
    raw_scores: bool = Field(default=False, description="TEI: the fused score instead of the one in [0, 1].")
    return_text: bool = Field(default=False, description="TEI's word for return_documents.")
    # What other servers have and a page reranker has no use for: taken, and the answer says it was not used.
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
    def _one_kind(self) -> "RerankRequest":
        if (self.documents is None) == (self.texts is None):
            raise ValueError("wanted either documents or texts")
        count = len(self.documents or self.texts or [])
        if self.retriever_scores is not None and len(self.retriever_scores) != count:
            raise ValueError(
                f"{len(self.retriever_scores)} retriever scores for {count} documents; wanted one each"
            )
        return self


WeightSource: TypeAlias = Literal["calibration", "readout_alone"]
"""Where w came from: calibrated, or 1 because no retriever scores were to be had."""


class LatencyMs(Answer):
    """Where the time of a request went, in milliseconds."""

    queue: float = Field(description="Waiting for its turn.")
    retrieval: float
    reading: float = Field(description="Waiting for stored prefixes.")
    compute: float = Field(description="The model; passes are shared, and each request counts them in full.")
    ranking: float


class ReturnedDocument(Answer):
    """A document as it was sent; of an image only that it was one."""

    text: str | None = None
    page: str | None = None
    image: str | None = Field(default=None, description="The kind of image, without its bytes.")


class RerankResult(Answer):
    """One document in its place."""

    index: int = Field(ge=0, description="Its place in the request, from 0.")
    relevance_score: float = Field(ge=0, le=1, description="In [0, 1]; orders as the fused score does.")
    document: ReturnedDocument | None = None
    page_id: str = Field(pattern=PAGE_ID)
    reference: str
    fused_score: float
    retriever_score: float | None = Field(description="b; null where there was none.")
    readout_score: float = Field(description="s.")


class Usage(Answer):
    """What it took."""

    total_tokens: int = Field(ge=0, description="Tokens the model ran: those of the query, for each page.")


class ApiVersion(Answer):
    """The version of the API that was called."""

    version: str


class BilledUnits(Answer):
    """Nothing is billed; clients expect the field."""

    search_units: float = 0


class Meta(Answer):
    """What Cohere's clients read beside the results."""

    api_version: ApiVersion
    billed_units: BilledUnits = BilledUnits()
    warnings: list[str] = Field(description="What a careful caller should know; empty if nothing.")


class RerankAnswer(Answer):
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


class TeiResult(Answer):
    """One result in TEI's shape."""

    index: int = Field(ge=0)
    score: float
    text: str | None = None


# --- score -------------------------------------------------------------------------------------------------


class ScoreRequest(Request):
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


class Scored(Answer):
    """One pair's score."""

    index: int = Field(ge=0)
    object: Literal["score"] = "score"
    score: float = Field(description="The readout score s of this pair alone: it depends on no other page.")


class ScoreAnswer(Answer):
    """Scores in the order of the request."""

    id: str
    object: Literal["list"] = "list"
    created: int
    model: str
    data: list[Scored]
    usage: Usage


# --- search, explain -----------------------------------------------------------------------------------


class SearchRequest(Request):
    """A query to retrieve and rerank for."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        json_schema_extra={"examples": [{"query": "operating margin in 2019", "k": 20, "top_n": 5}]},
    )

    query: QueryText
    k: int = Field(default=20, ge=1, le=MAX_DOCUMENTS, description="Pages the retriever finds.")
    top_n: int = Field(default=5, ge=1, description="Of these, the best to return.")
    deadline_ms: DeadlineMs = None


class SearchResult(Answer):
    """A page in its final place, with both scores it was placed by."""

    rank: int = Field(ge=1)
    retriever_rank: int = Field(ge=1)
    page_id: str = Field(pattern=PAGE_ID)
    reference: str
    relevance_score: float = Field(ge=0, le=1)
    fused_score: float = Field(description="(1 − w) · retriever_z + w · readout_z, eq. 2.")
    retriever_score: float
    readout_score: float
    retriever_z: float = Field(description="The retriever score standardized over the k candidates.")
    readout_z: float = Field(description="The readout score standardized over the k candidates.")
    image_url: str
    thumbnail_url: str
    reason: str


class SearchAnswer(Answer):
    """Pages, best first."""

    id: str
    model: str
    query: str
    weight: float = Field(ge=0, le=1)
    weight_source: WeightSource
    note: str
    results: list[SearchResult]
    latency_ms: LatencyMs


class ExplainRequest(Request):
    """A query and the stored page to explain."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        json_schema_extra={"examples": [{"query": "operating margin in 2019", "page": "report.pdf#3"}]},
    )

    query: QueryText
    page: Name
    layer: int | None = Field(
        default=None, ge=0, description="One stored layer; the mean of all unless said."
    )
    deadline_ms: DeadlineMs = None


Region: TypeAlias = tuple[float, float, float, float]


class ExplainAnswer(Answer):
    """Where the query's last state looked on the page."""

    query: str
    page_id: str = Field(pattern=PAGE_ID)
    reference: str
    layers: tuple[int, int] = Field(description="The first, and one past the last.")
    grid: tuple[int, int] = Field(description="Rows and columns of all visual positions.")
    kept: list[int] = Field(description="The visual positions stored, counted along the rows of the grid.")
    weights: list[float] = Field(description="The attention on each of these; they add up to page_share.")
    regions: list[Region] = Field(description="Left, top, right, bottom of each of these, from 0 to 1.")
    page_share: float
    instruction_share: float
    query_share: float


# --- facts -------------------------------------------------------------------------------------------------


class StoreAnswer(Answer):
    """The page store at a glance."""

    name: str
    pages: int
    prefix_bytes: int
    bytes_per_page: float
    lineage: dict[str, Any] = Field(description="What the store was made with.")
    retriever: str | None = Field(description="The retriever searched with; null where there is none.")
    encodes_missing: bool = Field(description="Whether texts and images that are not stored may be sent.")


class WeightFacts(Answer):
    """A fusion weight and its reasons; null is what could not be estimated."""

    weight: float
    weight_interval: tuple[float, float]
    method: Literal["closed-form", "label-free", "prior", "given"]
    c_b: float | None
    c_s: float | None
    rho: float | None
    interior: bool
    queries_used: int
    queries_skipped: int
    shrunk: bool
    chance_of_gain: float | None
    note: str


class ReadingFacts(Answer):
    """One target read at one place, and what speaks for it; null is what could not be measured."""

    target: Target
    state: State
    told_apart: float | None = Field(
        description="Share of the lists whose candidates the target tells apart."
    )
    spread: float | None = Field(description="Mean width of the target over the candidates of a list.")
    retriever_target: float | None
    retriever_readout: float | None
    agreement: float | None = Field(description="r: the readout with this target, held out.")
    relevance: float | None = Field(description="c_s, judged or by the one-factor model.")
    supported: bool
    note: str


class CalibrationAnswer(Answer):
    """How readout and weight came about; null is what could not be estimated."""

    name: str
    retriever: str
    target: Target = Field(description="What the readout was taught.")
    state: State = Field(description="Where its states are read.")
    reason: str = Field(description="Why these two.")
    readings: list[ReadingFacts] = Field(description="All targets and states that were looked at.")
    penalty: float = Field(description="λ.")
    weight: WeightFacts = Field(description="What is deployed.")
    label_free: WeightFacts
    closed_form: WeightFacts | None
    queries_from: str
    queries: int
    lists: int
    candidates: int
    pairs: int
    penalties: list[float] = Field(description="λ tried, ascending.")
    errors: dict[str, list[float]] = Field(description="Held-out part → its error at each λ.")
    chosen: dict[str, float] = Field(description="Held-out part → the λ its fold picked.")
    penalty_at_edge: bool
    agreement: float | None = Field(description="r: the readout with its teacher, held out.")
    agreement_interval: tuple[float | None, float | None]
    teacher_relevance: float | None
    relevance_floor: float | None
    expected_gain: float | None
    readout_spread: float | None = Field(description="Mean width of the readout's scores in a held-out list.")
    relevance_slope: float = Field(description="relevance_score = Φ(slope · fused_score + offset).")
    relevance_offset: float
    warnings: list[str]


class Model(Answer):
    """A model this server ranks with."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str
    endpoints: list[str]


class ModelsAnswer(Answer):
    """All of them: one."""

    object: Literal["list"] = "list"
    data: list[Model]


class Health(Answer):
    """Whether the server lives, or takes requests."""

    status: Literal["ok", "ready"]


class FieldError(Answer):
    """What is wrong with one field of a request."""

    field: str
    message: str


class ErrorAnswer(Answer):
    """Every error looks like this."""

    message: str = Field(description="What was found, what was wanted, what to do.")
    code: str = Field(description="One word a program can act on.", examples=["page_not_found"])
    fields: list[FieldError] = []
