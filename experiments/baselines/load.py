"""The baselines of a benchmark, each over one corpus; one that cannot run is a row that says why.

On the miniature every baseline is of the same kind as the paper's, and has its true name: none is one of the
published checkpoints.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from experiments.baselines.base import Baseline, Unavailable
from miniature import model_path, weights
from ridgerank.errors import RidgeRankError
from ridgerank.ragged import Floats
from ridgerank.records import Candidate
from ridgerank.retrievers.base import Retriever
from ridgerank.store.page_store import PageStore

if TYPE_CHECKING:
    import torch

    from experiments.baselines.monoqwen import MonoQwen
    from experiments.baselines.qwen3_reranker import Qwen3Reranker
    from ridgerank.backbones.base import Backbone
    from ridgerank.lineage import Lineage
    from ridgerank.retrievers.encoders import MultiVectorEncoder


LINQ_EMBED = "dense:Linq-AI-Research/Linq-Embed-Mistral"
"""The paper's text retriever, as `load_retriever` names it; its query instruction is put before the query."""


class TextRetriever(Baseline):
    """The text retriever's own scores of the candidates; `hybrid` fuses them with the page retriever's."""

    def __init__(self, retriever: Retriever, *, name: str) -> None:
        self.name = name
        self._retriever = retriever

    def score(self, query: str, candidates: Sequence[Candidate]) -> Floats:
        """The score each page would have in a search."""
        return self._retriever.score(query, [candidate.page_id for candidate in candidates])


BaselineKind: TypeAlias = Literal["miniature", "published"]
BaselineRole: TypeAlias = Literal["text retriever", "GQR", "text reranker", "image reranker"]
"""What a baseline is in the paper: Linq-Embed, GQR, Qwen3-Reranker-0.6B, MonoQwen2-VL."""

NAMES: Mapping[BaselineKind, Mapping[BaselineRole, str]] = {
    "published": {
        "text retriever": "Linq-Embed",
        "GQR": "GQR",
        "text reranker": "Qwen3-Reranker-0.6B",
        "image reranker": "MonoQwen2-VL",
    },
    "miniature": {
        "text retriever": "BM25 (stands in for Linq-Embed)",
        "GQR": "GQR (guided by BM25)",
        "text reranker": "Sequential dependence model (stands in for Qwen3-Reranker-0.6B)",
        "image reranker": "mini-glm at full depth (stands in for MonoQwen2-VL)",
    },
}
"""As tables print them."""
STAND_IN_BACKBONE = "mini-glm"


class BaselineModels:
    """The models of the baselines, each loaded once, when it is first needed, and shared by all corpora."""

    def __init__(
        self,
        kind: BaselineKind,
        *,
        device: "str | torch.device | None" = None,
        text_reranker: str | None = None,
        image_reranker: str | None = None,
    ) -> None:
        """Choose stand-ins or published checkpoints; the latter may be folders."""
        self.kind = kind
        self.device = device
        self._text_source = text_reranker
        self._image_source = image_reranker
        self._encoders: dict[str, MultiVectorEncoder] = {}

    def encoder(self, source: str) -> "MultiVectorEncoder":
        """The late interaction model whose vectors a store holds."""
        from ridgerank.retrievers.encoders import load_encoder

        if source not in self._encoders:
            self._encoders[source] = load_encoder(model_path(source), device=self.device)
        return self._encoders[source]

    @cached_property
    def text_reranker(self) -> "Qwen3Reranker":
        """Qwen3-Reranker."""
        from experiments.baselines.qwen3_reranker import REPOSITORY, load_qwen3_reranker

        return load_qwen3_reranker(self._text_source or REPOSITORY, device=self.device)

    @cached_property
    def image_reranker(self) -> "MonoQwen":
        """MonoQwen2-VL."""
        from experiments.baselines.monoqwen import REPOSITORY, load_mono_qwen

        return load_mono_qwen(self._image_source or REPOSITORY, device=self.device)

    @cached_property
    def stand_in(self) -> "Backbone":
        """The embedded model that judges page images."""
        from ridgerank.backbones.load import load_backbone

        return load_backbone(weights(STAND_IN_BACKBONE), device=self.device)

    @cached_property
    def stand_in_lineage(self) -> "Lineage":
        """The lineage of its margins."""
        from ridgerank.lineage import Keep, StorageSetting

        layers = self.stand_in.geometry.layers
        return self.stand_in.lineage(StorageSetting(Keep(), layers))


def load_baselines(
    models: BaselineModels,
    store: PageStore,
    *,
    work: Path,
    text: str | None = None,
    documents: Sequence[Path] = (),
    roles: Sequence[BaselineRole] = ("text retriever", "GQR", "text reranker", "image reranker"),
) -> dict[BaselineRole, Baseline | Unavailable]:
    """The baselines over one corpus' store; margins of the stand-in are saved in `work`.

    `text` names the text retriever as `load_retriever` does; the default is Linq-Embed, on the miniature
    BM25. `documents` is where page images are found, if not where the store was indexed from.
    """
    corpus_baselines = _CorpusBaselines(models, store, work, text, documents)
    loaders: Mapping[BaselineRole, Callable[[], Baseline]] = {
        "text retriever": corpus_baselines.text_retriever,
        "GQR": corpus_baselines.gqr,
        "text reranker": corpus_baselines.text_reranker,
        "image reranker": corpus_baselines.image_reranker,
    }
    baselines: dict[BaselineRole, Baseline | Unavailable] = {}
    for role in roles:
        try:
            baselines[role] = loaders[role]()
        except RidgeRankError as error:
            baselines[role] = Unavailable(corpus_baselines.name(role), str(error))
    return baselines


class _CorpusBaselines:
    """One corpus, and how each of its baselines is loaded."""

    def __init__(
        self,
        models: BaselineModels,
        store: PageStore,
        work: Path,
        text: str | None,
        documents: Sequence[Path],
    ) -> None:
        self._models = models
        self._store = store
        self._work = work
        self._text_name = text
        self._documents = documents

    def name(self, role: BaselineRole) -> str:
        # A text retriever that the caller chose is called by its name.
        return (
            self._text_name
            if role == "text retriever" and self._text_name
            else NAMES[self._models.kind][role]
        )

    @cached_property
    def _text(self) -> "Retriever":
        from ridgerank.retrievers.load import load_retriever

        default = "bm25" if self._models.kind == "miniature" else LINQ_EMBED
        name = self._text_name or default
        return load_retriever(name, self._store, device=self._models.device)

    def text_retriever(self) -> Baseline:
        return TextRetriever(self._text, name=self.name("text retriever"))

    def gqr(self) -> Baseline:
        from experiments.baselines.gqr import GuidedQueryRefinement
        from ridgerank.errors import RetrieverError

        column = self._store.vectors
        if column is None:
            raise RetrieverError(
                f"the page store at {self._store.uri} holds no vectors, among which GQR moves a query"
            )
        encoder = self._models.encoder(column.origin.source)
        return GuidedQueryRefinement(encoder, self._store, self._text, name=self.name("GQR"))

    def text_reranker(self) -> Baseline:
        if self._models.kind == "miniature":
            from experiments.baselines.sequential_dependence import SequentialDependence

            return SequentialDependence(self._store, name=self.name("text reranker"))
        from experiments.baselines.cross_encoders import TextReranker

        return TextReranker(self._models.text_reranker, self._store, name=self.name("text reranker"))

    def image_reranker(self) -> Baseline:
        name = self.name("image reranker")
        if self._models.kind == "miniature":
            from experiments.baselines.cross_encoders import FullDepthBaseline
            from ridgerank.calibration.teacher import TargetCache

            margins = TargetCache(self._work, self._models.stand_in_lineage)
            return FullDepthBaseline(
                self._models.stand_in, self._store, margins, name=name, documents=self._documents
            )
        from experiments.baselines.cross_encoders import ImageReranker

        return ImageReranker(self._models.image_reranker, self._store, name=name, documents=self._documents)
