"""MTEB: a model that satisfies its `CrossEncoderProtocol`, for reranking tasks."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import Any

from mteb.abstasks.task_metadata import TaskMetadata
from mteb.models.model_meta import ModelMeta
from mteb.types import PromptType
from PIL.Image import Image

from ridgerank.adapters.matching import CorpusNames, LibraryDocument, corpus_page_name, score_pairs
from ridgerank.errors import ScoreError
from ridgerank.ragged import Floats
from ridgerank.ranking.reranker import Reranker

Batches = Iterable[Mapping[str, Any]]
"""What MTEB's data loaders yield: columns of a few rows at a time."""


class PageCrossEncoderModel:
    """A `Reranker` as a model of MTEB.

    Scores are comparable within one query only, which is all that MTEB compares.

    `names` leads from a task's corpus ids to pages, by id or reference, or by a pattern such as `{}.png#1`. A
    corpus id not in it is taken as the page's name itself, and a page not found by name is looked for by its
    image. MTEB hands over no retriever scores: the retriever of the calibration gives them, so that a page in
    no store is an error.
    """

    def __init__(
        self, reranker: Reranker, *, names: CorpusNames | None = None, name: str | None = None
    ) -> None:
        """Wrap a reranker; `name`, as `organisation/model`, is what results are filed under."""
        self.reranker = reranker
        self._names = names
        lineage = reranker.store.lineage
        self._meta = ModelMeta.create_empty(
            {
                "name": name or f"ridgerank/{PurePath(lineage.backbone).name}",
                "revision": lineage.weights,
                "framework": ["PyTorch"],
                "modalities": ["image", "text"],
                "model_type": ["cross-encoder"],
            }
        )

    @property
    def mteb_model_meta(self) -> ModelMeta:
        """What MTEB files results under."""
        return self._meta

    def predict(
        self,
        inputs1: Batches,
        inputs2: Batches,
        *,
        task_metadata: TaskMetadata,
        hf_split: str,
        hf_subset: str,
        prompt_type: PromptType | None = None,
        **kwargs: Any,  # noqa: ANN401 (the protocol's: batch_size, show_progress_bar; neither changes a score)
    ) -> Floats:
        """Fused scores (pairs,) of queries (`inputs1`) with documents (`inputs2`)."""
        queries = [text for batch in inputs1 for text in batch["text"]]
        documents = [document for batch in inputs2 for document in self._documents(batch)]
        if len(queries) != len(documents):
            raise ScoreError(f"{len(queries)} queries with {len(documents)} documents; wanted pairs")
        return score_pairs(self.reranker, list(zip(queries, documents, strict=True)))

    def _documents(self, batch: Mapping[str, Any]) -> Iterator[LibraryDocument]:
        """The documents of a batch; an image is held only where the store does not know the name."""
        columns = {name: batch[name] for name in ("id", "image") if name in batch}
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        names = [self._page_name(row.get("id")) for row in rows]
        known_pages = self.reranker.store.lookup_many(name for name in names if name is not None)
        for name, row in zip(names, rows, strict=True):
            image = None if name in known_pages else row.get("image")
            yield LibraryDocument((name,), image=None if image is None else _loader(image))

    def _page_name(self, corpus_id: object) -> str | None:
        return corpus_page_name(self._names, corpus_id) if isinstance(corpus_id, str) else None


def _loader(image: Image) -> Callable[[], Image]:
    return lambda: image
