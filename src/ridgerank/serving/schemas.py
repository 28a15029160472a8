"""What callers send and what they get, by route; every unknown field is refused."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator, model_validator

from ridgerank.records import MAX_QUERY_CHARACTERS
from ridgerank.serving.settings import OnOverload

MAX_DOCUMENTS = 1000
"""Per request; a server may allow fewer."""
MAX_QUERIES = 64
MAX_PARTS = 16
MAX_NAME = 1024
MAX_TEXT = 20_000
MAX_DATA_URI = 30_000_000
PAGE_ID = r"^[0-9a-f]{64}$"

Text = Annotated[str, StringConstraints(min_length=1, max_length=MAX_TEXT, pattern=r"\S")]
Name = Annotated[str, StringConstraints(min_length=1, max_length=MAX_NAME, pattern=r"\S")]
DataUri = Annotated[str, StringConstraints(min_length=5, max_length=MAX_DATA_URI)]
QueryText = Annotated[
    str,
    StringConstraints(min_length=1, max_length=MAX_QUERY_CHARACTERS, pattern=r"\S"),
    Field(examples=["operating margin in 2019"]),
]
DeadlineMs = Annotated[
    int | None,
    Field(ge=1, le=3_600_000, description="Milliseconds after which to give up; the server has a limit too."),
]
StoreName = Annotated[
    Name | None, Field(description="The store to use, if the server has several and the path names none.")
]
_RELEVANCE = (
    "From 0 to 1, never rising down the results: the fused order at the level of the margins that the full "
    "model is predicted to give; only a rank if the calibration predicts no margin."
)


def _example(**fields: object) -> dict[str, Any]:
    return {"examples": [fields]}


class RequestModel(BaseModel):
    """The base of everything a caller sends: true is not a number, and "1" is not one."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class ResponseModel(BaseModel):
    """The base of everything the server sends."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class FieldError(ResponseModel):
    """What is wrong with one field of a request."""

    field: str
    message: str


class ErrorResponse(ResponseModel):
    """Every error looks like this."""

    message: str = Field(description="What was found, what was expected, what to do.")
    code: str = Field(description="One word a program can act on.", examples=["page_not_found"])
    fields: list[FieldError] = []


class PageDocument(RequestModel):
    """A stored page, by id or reference."""

    page: Name = Field(examples=["report.pdf#3"])


class IdDocument(RequestModel):
    """The same under the name other clients use."""

    id: Name


class TextDocument(RequestModel):
    """A text; like a bare string it may name a stored page."""

    text: Text


class ImageDocument(RequestModel):
    """A page as an image: a data URI or base64, with its text or without. Addresses are never fetched."""

    image: DataUri = Field(examples=["data:image/png;base64,iVBORw0KGgo…"])
    text: Text | None = None


class SourceDocument(RequestModel):
    """A stored page, by its file and its number from 1, as chunks of text pipelines name it."""

    source: Name = Field(examples=["report.pdf"])
    page: int = Field(ge=1, le=10**9, examples=[3])


class ImageUrl(RequestModel):
    """The address of an image, as vLLM and OpenAI have it; only data URIs are accepted."""

    url: DataUri
    detail: Literal["auto", "low", "high"] | None = None


class TextPart(RequestModel):
    """A text part of a document."""

    type: Literal["text"]
    text: Text


class ImagePart(RequestModel):
    """An image part of a document."""

    type: Literal["image_url"]
    image_url: ImageUrl


class PartsDocument(RequestModel):
    """A document in parts, as vLLM has it: at most one image, and texts."""

    content: list[Annotated[TextPart | ImagePart, Field(discriminator="type")]] = Field(
        min_length=1, max_length=MAX_PARTS
    )

    @model_validator(mode="after")
    def _check_images(self) -> "PartsDocument":
        images = sum(isinstance(part, ImagePart) for part in self.content)
        if images > 1:
            raise ValueError(
                f"{images} images in one document; expected at most one, because a page is one image"
            )
        return self


Document: TypeAlias = (
    Annotated[str, StringConstraints(max_length=MAX_DATA_URI)]
    | PageDocument
    | IdDocument
    | TextDocument
    | ImageDocument
    | SourceDocument
    | PartsDocument
)
"""A stored page, a text, or an image as a data URI or base64."""
SentQuery: TypeAlias = QueryText | TextDocument | PartsDocument
"""A query: text, in any of the shapes that documents have."""
Documents: TypeAlias = Document | list[Document]
Queries: TypeAlias = SentQuery | list[SentQuery]
Settings: TypeAlias = dict[Name, Any]


class ForeignFields(RequestModel):
    """What Cohere, Jina, vLLM and TEI take besides queries and documents."""

    max_tokens_per_doc: int | None = Field(default=None, ge=0)
    max_tokens_per_query: int | None = Field(default=None, ge=0)
    max_chunks_per_doc: int | None = Field(default=None, ge=1)
    rank_fields: list[Name] | None = Field(default=None, max_length=64)
    priority: int | None = None
    truncate: bool | None = None
    truncation: bool | None = None
    truncation_direction: Literal["left", "right", "Left", "Right"] | None = None
    truncation_side: Literal["left", "right"] | None = None
    truncate_prompt_tokens: int | None = Field(default=None, ge=-1)
    max_doc_length: int | None = Field(default=None, ge=1)
    max_query_length: int | None = Field(default=None, ge=1)
    instruction: Text | None = None
    chat_template_kwargs: Settings | None = None
    mm_processor_kwargs: Settings | None = None
    cache_salt: Name | None = None
    return_embeddings: bool | None = None
    user: Name | None = None

    @field_validator("max_tokens_per_doc", mode="before")
    @classmethod
    def _check_tokens(cls, tokens: object) -> object:
        if isinstance(tokens, int) and tokens < 0:
            raise ValueError("max_tokens_per_doc must be a non-negative integer")  # as vLLM's clients expect
        return tokens

    def unused_fields(self) -> list[str]:
        """The names of the fields above that the request has."""
        unused = ForeignFields.model_fields.keys() - {"max_tokens_per_doc"}
        return [name for name in sorted(unused) if getattr(self, name) is not None]


class RankingModel(RequestModel):
    """What a caller may say of any ranking."""

    store: StoreName = None
    min_score: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="Leave out pages whose relevance_score is below this; refused if the calibration "
        "predicts no margin, because its scores are then only ranks.",
    )
    deadline_ms: DeadlineMs = None
    on_overload: OnOverload | None = Field(
        default=None,
        description="If the model cannot answer in time: an error, or the order of the retriever or of the "
        "scores that were sent. As the server was started by default.",
    )


class RerankRequest(
    ForeignFields,
    RankingModel,
    json_schema_extra=_example(
        model="ridgerank",
        query="operating margin in 2019",
        documents=["report.pdf#3", "report.pdf#4"],
        top_n=2,
    ),
):
    """Documents to put in order: `documents`, or TEI's `texts`."""

    query: SentQuery
    documents: Documents | None = None
    texts: list[Annotated[str, StringConstraints(max_length=MAX_TEXT)]] | None = Field(
        default=None, min_length=1, max_length=MAX_DOCUMENTS, description="TEI's word for documents."
    )
    model: Name | None = Field(default=None, description="Any name: a server has one model.")
    top_n: int | None = Field(default=None, ge=0, description="How many results; all by default, and for 0.")
    return_documents: bool | None = None
    retriever_scores: list[Annotated[float, Field(allow_inf_nan=False)]] | None = Field(
        default=None,
        max_length=MAX_DOCUMENTS,
        description="The first stage's score of each document, in their order.",
    )
    retriever: Name | None = Field(
        default=None, description="Whose scores or order it is; the calibrated weight is for one retriever."
    )
    order: Literal["retriever"] | None = Field(
        default=None, description="Documents without scores come best first; else their order says nothing."
    )
    on_missing: Literal["keep", "drop", "error"] = Field(
        default="keep", description="Documents that cannot be read stand last, are left out, or are an error."
    )
    raw_scores: bool = Field(default=False, description="TEI: the fused score instead of the one in [0, 1].")
    use_activation: bool | None = Field(default=None, description="vLLM: if false, the score's log odds.")
    return_text: bool = Field(default=False, description="TEI's word for return_documents.")
    request_id: Name | None = Field(default=None, description="vLLM: the id that the answer gets.")

    @property
    def sent_documents(self) -> list[Document]:
        """The documents, under whatever word they were sent."""
        if self.documents is None:
            return list(self.texts or [])
        return self.documents if isinstance(self.documents, list) else [self.documents]

    @model_validator(mode="after")
    def _check_documents(self) -> "RerankRequest":
        if (self.documents is None) == (self.texts is None):
            found = "neither documents nor texts" if self.documents is None else "both documents and texts"
            raise ValueError(f"{found} were sent; expected one of them")
        count = len(self.sent_documents)
        if not 1 <= count <= MAX_DOCUMENTS:
            raise ValueError(f"{count} documents; expected 1 to {MAX_DOCUMENTS:,}")
        scores = self.retriever_scores
        if scores is not None and len(scores) != count:
            raise ValueError(f"{len(scores)} retriever scores for {count} documents; expected one each")
        return self


class ReturnedDocument(ResponseModel):
    """A document as it was sent; of an image only that it was one."""

    text: str | None = None
    page: str | None = None
    image: str | None = Field(default=None, description="The media type of the image, without its bytes.")


class RerankResult(ResponseModel):
    """One document, with the scores it was ranked by."""

    index: int = Field(ge=0, description="Its index in the request, from 0.")
    relevance_score: float = Field(description=f"{_RELEVANCE} Its log odds if use_activation is false.")
    document: ReturnedDocument | None = None
    page_id: str | None = Field(pattern=PAGE_ID, description="Null for a document that cannot be read.")
    reference: str
    fused_score: float
    retriever_score: float | None = Field(description="b; null if there was none.")
    readout_score: float | None = Field(description="s; null if the model did not read it.")


class Usage(ResponseModel):
    """What a request cost."""

    prompt_tokens: int = Field(ge=0)
    total_tokens: int = Field(ge=0, description="Tokens the model ran: those of the query, once per page.")


class Meta(ResponseModel):
    """What Cohere's clients read besides the results."""

    api_version: dict[str, str]
    billed_units: dict[str, float] = {"search_units": 0.0}
    warnings: list[str]


class RankingResponse(ResponseModel):
    """What every answer with a ranking says."""

    id: str
    model: str
    weight: float = Field(ge=0, le=1, description="w: the readout's share in the fused score.")
    weight_source: Literal["calibration", "default", "readout_alone"] = Field(
        description="Calibrated, 0.5 for another retriever, or 1 because there were no retriever scores."
    )
    reranked: bool = Field(description="Whether the model has a say in this order.")
    reasons: list[str] = Field(
        description="What a careful caller should know; which order it is if not reranked."
    )
    latency_ms: dict[str, float] = Field(
        description="Of each step: queue, retrieval, reading stored pages, compute (the model), ranking."
    )


class RerankResponse(RankingResponse):
    """Results, best first."""

    results: list[RerankResult]
    usage: Usage
    meta: Meta


class TeiResult(ResponseModel):
    """One result in TEI's shape."""

    index: int = Field(ge=0)
    score: float
    text: str | None = None


_WORDS = (("queries", "documents"), ("queries", "items"), ("text_1", "text_2"), ("data_1", "data_2"))


class ScoreRequest(
    ForeignFields, json_schema_extra=_example(queries="operating margin in 2019", documents=["report.pdf#3"])
):
    """Queries and documents to score, as vLLM has it: one query for all documents, or one each."""

    queries: Queries | None = None
    documents: Documents | None = None
    items: Documents | None = None
    text_1: Queries | None = None
    text_2: Documents | None = None
    data_1: Queries | None = None
    data_2: Documents | None = None
    model: Name | None = None
    store: StoreName = None
    request_id: Name | None = None
    use_activation: bool | None = Field(default=None, description="Not used: a score is the readout's.")
    deadline_ms: DeadlineMs = None

    @property
    def pair_lists(self) -> tuple[list[SentQuery], list[Document]]:
        """Queries and documents, under whatever words they were sent."""
        first, second = self._words()
        queries, documents = getattr(self, first), getattr(self, second)
        return (
            queries if isinstance(queries, list) else [queries],
            documents if isinstance(documents, list) else [documents],
        )

    @model_validator(mode="after")
    def _check_pairs(self) -> "ScoreRequest":
        queries, documents = self.pair_lists
        if not 1 <= len(queries) <= MAX_QUERIES or not 1 <= len(documents) <= MAX_DOCUMENTS:
            raise ValueError(
                f"{len(queries)} queries and {len(documents)} documents; expected 1 to {MAX_QUERIES} queries "
                f"and 1 to {MAX_DOCUMENTS:,} documents"
            )
        if len(queries) not in (1, len(documents)):
            raise ValueError(
                f"{len(queries)} queries for {len(documents)} documents; expected one query, or one each"
            )
        return self

    def _words(self) -> tuple[str, str]:
        """The two fields that hold queries and documents."""
        present = {field for pair in _WORDS for field in pair if getattr(self, field) is not None}
        for pair in _WORDS:
            if present == set(pair):
                return pair
        raise ValueError(
            f"{', '.join(sorted(present)) or 'neither queries nor documents'}; expected queries with "
            "documents (or items), or text_1 with text_2, or data_1 with data_2"
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
    warnings: list[str] = []


Label: TypeAlias = str | bool | int | float


class SearchRequest(
    RankingModel, json_schema_extra=_example(query="operating margin in 2019", k=20, top_n=5)
):
    """A query to retrieve and rerank for."""

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
    lines: bool = Field(default=False, description="Whether each result has the line that matches best.")


@dataclass(frozen=True, slots=True)
class MatchedLine:
    """A line of a page's text, or the part of a long one around the query's words."""

    text: str
    marks: tuple[tuple[int, int], ...]
    """The query's words in it: first character, and one past the last."""


class SearchResult(ResponseModel):
    """A page with its rank and both scores it was ranked by."""

    rank: int = Field(ge=1)
    retriever_rank: int = Field(ge=1)
    page_id: str = Field(pattern=PAGE_ID)
    reference: str
    relevance_score: float = Field(ge=0, le=1, description=_RELEVANCE)
    fused_score: float = Field(description="(1 − w) · retriever_z + w · readout_z, eq. 2.")
    retriever_score: float
    readout_score: float | None
    retriever_z: float = Field(description="The retriever score standardized over the k candidates.")
    readout_z: float = Field(description="The readout score standardized over the k candidates.")
    image_url: str
    thumbnail_url: str
    reason: str
    line: MatchedLine | None = Field(description="Null without `lines`, or without page text.")


class SearchResponse(RankingResponse):
    """Pages, best first."""

    query: str
    results: list[SearchResult]


class ExplainRequest(
    RequestModel, json_schema_extra=_example(query="operating margin in 2019", page="report.pdf#3")
):
    """A query and the stored page to explain."""

    query: QueryText
    page: Name
    store: StoreName = None
    layer: int | None = Field(default=None, ge=0, description="One stored layer; the mean of all by default.")
    deadline_ms: DeadlineMs = None


class JudgementRequest(
    RequestModel,
    json_schema_extra=_example(query="operating margin in 2019", page="report.pdf#3", grade=2, judge="ada"),
):
    """What somebody says of a page."""

    query: QueryText
    page: Name
    store: StoreName = None
    grade: int | None = Field(
        ge=0, le=2, description="2 relevant, 1 partly, 0 not; null takes back what the judge said before."
    )
    judge: Annotated[
        str, StringConstraints(strip_whitespace=True, max_length=60, pattern=r"^[^\n\r\t]*$")
    ] = Field(default="", description="Who says so; empty for nobody in particular.")
    deadline_ms: DeadlineMs = None


class JudgementsResponse(ResponseModel):
    """Judgements of one query and of all, and what they make of the weight."""

    query: str
    own: dict[str, int] = Field(description="Page id → what this judge says.")
    merged: dict[str, int] = Field(description="Page id → the grade that stands for all judges'.")
    pages: int = Field(description="Judged pages of this query; an answer has 200 of them at most.")
    judgements: int
    queries: int
    judges: int
    weight: float = Field(description="What `ridgerank calibrate --weight-only` would deploy.")
    weight_interval: list[float] = Field(min_length=2, max_length=2)
    queries_used: int = Field(description="Judged queries that weight rests on.")
    note: str
    next_pages: dict[str, str] = Field(
        description="Page id → reference: first pages of both orders that nobody judged, most disputed first."
    )
    next_queries: list[str]
