"""What a server says about itself: store, calibration, models, health."""

from typing import Any, Literal

from pydantic import Field

from ridgerank.records import State, Target
from ridgerank.serving.schemas.shared_schemas import ResponseModel


class StoreResponse(ResponseModel):
    """The page store at a glance."""

    name: str
    pages: int
    prefix_bytes: int
    bytes_per_page: float
    lineage: dict[str, Any] = Field(description="The model and settings the store was made with.")
    retriever: str | None = Field(description="The retriever of a search; null where there is none.")
    encodes_missing: bool = Field(description="Whether texts and images that are not stored may be sent.")
    reads_text: bool = Field(description="Whether the model reads the pages' text, not their images.")
    current: bool = Field(
        description="Whether the store is as this server opened it; where not, restart the server."
    )
    judging: bool = Field(description="Whether pages may be judged (`ridgerank serve --judge`).")
    examples: list[str] = Field(description="Queries to try, made from the store.")
    labels: list[str] = Field(description="Some metadata to filter by, as `year=2019`.")


class WeightReport(ResponseModel):
    """A fusion weight and how it was estimated; null where something could not be estimated."""

    weight: float
    weight_interval: tuple[float, float]
    method: Literal["closed-form", "label-free", "combined", "prior", "given"]
    c_b: float | None
    c_s: float | None
    rho: float | None
    interior: bool
    queries_used: int
    queries_skipped: int
    shrunk: bool
    chance_of_gain: float | None
    note: str
    cause: str = Field(default="", description="Why the weight is not an estimate, or not deployed.")


class ReadingReport(ResponseModel):
    """One target with one state, and how well the readout fits it; null where nothing could be measured."""

    target: Target
    state: State
    varied_share: float | None = Field(
        description="Share of the lists whose candidates the target tells apart."
    )
    spread: float | None = Field(description="Mean width of the target over the candidates of a list.")
    retriever_target: float | None
    retriever_readout: float | None
    agreement: float | None = Field(description="r: the readout with this target, held out.")
    relevance: float | None = Field(description="c_s, judged or by the one-factor model.")
    supported: bool
    note: str


class CalibrationResponse(ResponseModel):
    """How readout and weight were fitted; null where something could not be estimated."""

    name: str
    retriever: str
    target: Target = Field(description="What the readout is fitted to.")
    state: State = Field(description="Which state the readout reads.")
    teacher: str = Field(description="Whose scores the readout reproduces.")
    reason: str = Field(description="Why this target and this state.")
    options: list[ReadingReport] = Field(description="All targets and states that were compared.")
    penalty: float = Field(description="λ.")
    weight: WeightReport = Field(description="The weight in use.")
    label_free: WeightReport
    closed_form: WeightReport | None
    queries_from: str
    queries: int
    lists: int
    candidates: int
    pairs: int
    penalties: list[float] = Field(description="λ tried, ascending.")
    errors: dict[str, list[float]] = Field(description="Held-out part → its error at each λ.")
    chosen: dict[str, float] = Field(description="Held-out part → the λ its fold picked.")
    penalty_at_edge: bool
    agreement: float | None = Field(description="r: the readout with its target, held out.")
    agreement_interval: tuple[float | None, float | None]
    teacher_relevance: float | None
    relevance_floor: float | None
    expected_gain: float | None
    readout_spread: float | None = Field(description="Mean width of the readout's scores in a held-out list.")
    warnings: list[str]


class QueueStats(ResponseModel):
    """How busy the server is, in the words of infinity."""

    queue_fraction: float = Field(description="Admitted requests of those that may be.")
    queue_absolute: int
    results_pending: int
    batch_size: int


class Model(ResponseModel):
    """A model this server ranks with."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str
    endpoints: list[str]
    root: str
    parent: str | None = None
    permission: list[str] = Field(default=[], description="Empty: keys open the whole server, or nothing.")
    capabilities: list[str] = Field(default=["rerank"])
    stats: QueueStats


class ModelsResponse(ResponseModel):
    """The models of this server: one."""

    object: Literal["list"] = "list"
    data: list[Model]


class Health(ResponseModel):
    """Whether the server runs, or takes requests."""

    status: Literal["ok", "ready"]
