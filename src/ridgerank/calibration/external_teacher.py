"""Teachers other than the backbone itself: whose scores a readout may reproduce.

The states stay the backbone's; only the target changes. A teacher is a TREC run of scores, judgements,
another backbone at full depth, or a cross encoder, of sentence-transformers or as ONNX. What a model
computes is kept on disk as it is computed, so that an interrupted calibration goes on where it stopped.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Protocol

from PIL.Image import Image

from ridgerank.backbones.base import Backbone
from ridgerank.backbones.causal_text import MODEL_CLASSES
from ridgerank.backbones.fingerprints import fingerprint_weights
from ridgerank.backbones.load import FAMILIES, load_backbone, parse_dtype, placement
from ridgerank.backbones.model_source import SHORT_NAMES
from ridgerank.calibration.executor import compute_page_targets
from ridgerank.calibration.hooks import CalibrationHook, CalibrationPlan
from ridgerank.calibration.stored_scores import CandidateLists, ignore_pages, read_score_file
from ridgerank.calibration.target_cache import TargetCache
from ridgerank.calibration.teacher import find_missing_targets
from ridgerank.errors import CalibrationError, ExtraMissing
from ridgerank.records import Candidate, Query
from ridgerank.shipped_models import shipped_folder
from ridgerank.store.page_store import PageStore
from ridgerank.store.rerender import BATCH_PAGES, require_locations, rerender_pages

if TYPE_CHECKING:
    import torch

OWN = "the backbone itself"
"""Whose scores a readout reproduces where no teacher is named."""
_FILE_SUFFIXES = (".trec", ".run", ".qrels", ".txt", ".tsv", ".gz")
_IMAGE_PIXELS = 1280 * 28 * 28
"""Pixel budget of a page for a cross encoder that looks at it."""


class ExternalTeacher(Protocol):
    """Scores of pages under queries, from elsewhere than the backbone."""

    name: str
    """As the report says it."""

    def count_pages_to_score(self, lists: CandidateLists) -> int:
        """Pages of which a score has yet to be computed."""

    def score(
        self, lists: CandidateLists, *, on_pages_scored: Callable[[int], None] = ignore_pages
    ) -> dict[tuple[str, str], float]:
        """Scores by query id and page id; pairs the teacher does not know are left out."""


class ComputingTeacher(ABC):
    """A teacher that is run: what it computes is kept on disk, and only what is missing there is computed."""

    name: str
    _cache: TargetCache

    def count_pages_to_score(self, lists: CandidateLists) -> int:
        """Pages that have to be read."""
        return len(_missing_queries(self._cache, lists))

    def score(
        self, lists: CandidateLists, *, on_pages_scored: Callable[[int], None] = ignore_pages
    ) -> dict[tuple[str, str], float]:
        """Scores of all pairs; each page is read once."""
        self._score_missing(_missing_queries(self._cache, lists), on_pages_scored)
        return _cached_scores(self._cache, lists)

    @abstractmethod
    def _score_missing(
        self, queries_by_page: Mapping[str, Sequence[str]], on_pages_scored: Callable[[int], None]
    ) -> None:
        """Compute these scores and add them to the cache, some pages at a time."""


class BackboneTeacher(ComputingTeacher):
    """Another backbone at full depth: its margins, or the scores of its ranking head."""

    def __init__(self, backbone: Backbone, store: PageStore, folder: Path, documents: Sequence[Path]) -> None:
        self.name = f"{PurePath(backbone.name).name} at full depth"
        self._backbone = backbone
        self._store = store
        self._documents = documents
        prints = backbone.fingerprints()
        self._cache = TargetCache.of_teacher(
            folder, "-".join((prints.weights, prints.processor, prints.prompt))
        )

    def _score_missing(
        self, queries_by_page: Mapping[str, Sequence[str]], on_pages_scored: Callable[[int], None]
    ) -> None:
        locations = require_locations(self._store, sorted(queries_by_page), documents=self._documents)
        for start in range(0, len(locations), BATCH_PAGES):
            batch = locations[start : start + BATCH_PAGES]
            values = compute_page_targets(self._backbone, batch, queries_by_page, ("margin",)).values
            self._cache.add(values["margin"])
            on_pages_scored(len(batch))


class CrossEncoderTeacher(ComputingTeacher):
    """A cross encoder, of sentence-transformers or as ONNX, over the stored text of pages or their images."""

    def __init__(
        self,
        name: str,
        model: Any,  # noqa: ANN401 (untyped)
        store: PageStore,
        folder: Path,
        documents: Sequence[Path],
    ) -> None:
        self.reads_images = "image" in getattr(model, "modalities", ())
        kind = "image" if self.reads_images else "text"
        self.name = f"the cross encoder {PurePath(name).name} over the {kind} of pages"
        self._model = model
        self._store = store
        self._documents = documents
        digest = getattr(model, "fingerprint", None) or fingerprint_weights(model)
        self._cache = TargetCache.of_teacher(folder, f"{digest}-{kind}")

    def _score_missing(
        self, queries_by_page: Mapping[str, Sequence[str]], on_pages_scored: Callable[[int], None]
    ) -> None:
        page_ids = sorted(queries_by_page)
        if self.reads_images:
            for pages in rerender_pages(
                self._store, page_ids, max_pixels=_IMAGE_PIXELS, documents=self._documents
            ):
                self._add({page.page_id: page.image for page in pages}, queries_by_page)
                on_pages_scored(len(pages))
        elif page_ids:
            texts = self._store.texts()
            for start in range(0, len(page_ids), BATCH_PAGES):
                ids = page_ids[start : start + BATCH_PAGES]
                self._add({page_id: texts[page_id] for page_id in ids}, queries_by_page)
                on_pages_scored(len(ids))

    def _add(self, contents: Mapping[str, str | Image], queries_by_page: Mapping[str, Sequence[str]]) -> None:
        """Keep raw scores, before any squashing."""
        from torch.nn import Identity

        pairs = [(page_id, query) for page_id in contents for query in queries_by_page[page_id]]
        scores = self._model.predict(
            [(query, contents[page_id]) for page_id, query in pairs],
            activation_fn=Identity(),
            show_progress_bar=False,
        )
        values: dict[str, dict[str, float]] = {}
        for (page_id, query), score in zip(pairs, scores.reshape(-1).tolist(), strict=True):
            values.setdefault(page_id, {})[query] = score
        self._cache.add(values)


def ask_teacher(
    teacher: ExternalTeacher, lists: CandidateLists, hook: CalibrationHook, *, queries_from: str
) -> dict[tuple[str, str], float]:
    """The scores of a teacher other than the model, by query id and page id; the hook hears how far it is."""
    pages = {candidate.page_id for candidates in lists.values() for candidate in candidates}
    to_score = teacher.count_pages_to_score(lists)
    hook.planned(CalibrationPlan(len(lists), queries_from, len(pages), to_score, teacher.name))
    return teacher.score(lists, on_pages_scored=hook.targets_stored)


def load_teacher(
    name: str,
    store: PageStore,
    folder: Path,
    *,
    documents: Sequence[Path] = (),
    device: str | None = None,
    dtype: "str | torch.dtype | None" = None,
) -> ExternalTeacher:
    """A teacher by its name: a TREC file, a backbone, or a cross encoder; `folder` keeps what it computes.

    `backbone:NAME` and `cross-encoder:NAME` say which of the two a name is, where files do not tell.
    """
    kind, plain = _split_kind(name)
    if not kind and Path(name).is_file():
        return read_score_file(Path(name), store)
    if kind == "backbone" or (not kind and _is_backbone(plain)):
        backbone = load_backbone(plain, device=device, dtype=parse_dtype(dtype))
        return BackboneTeacher(backbone, store, folder, documents)
    return CrossEncoderTeacher(plain, _load_cross_encoder(plain, device, dtype), store, folder, documents)


def require_teacher_exists(name: str) -> None:
    """Refuse a file or folder that is not there, before anything is loaded: it is no name on a hub."""
    _, path = _split_kind(name)
    is_path = path.startswith((".", "/", "~")) or path.count("/") > 1
    if (is_path or Path(path).suffix in _FILE_SUFFIXES) and not Path(path).exists():
        raise CalibrationError(
            f"no file or folder {path!r} for a teacher; wanted a TREC file that is there, or a backbone or "
            "cross encoder, by name or folder"
        )


def _split_kind(name: str) -> tuple[str, str]:
    """`backbone` or `cross-encoder` where a name begins so, else nothing, and the name without it."""
    kind, _, plain = name.partition(":")
    return (kind, plain) if kind in ("backbone", "cross-encoder") else ("", name)


def _is_backbone(name: str) -> bool:
    """Whether a name is a backbone's, as far as its files here tell; a hub name is a cross encoder's."""
    if name.lower() in SHORT_NAMES or shipped_folder(name.lower()) is not None:
        return True
    folder = Path(name)
    if (folder / "adapter_config.json").exists():
        return True
    if not (folder / "config.json").exists() or (folder / "modules.json").exists():
        return False
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    classifies = any("Classification" in each for each in config.get("architectures") or ())
    return not classifies and config.get("model_type") in {*FAMILIES, *MODEL_CLASSES}


def _load_cross_encoder(name: str, device: str | None, dtype: "str | torch.dtype | None") -> Any:  # noqa: ANN401 (untyped)
    if any(Path(name).glob("**/*.onnx")) and not any(Path(name).glob("*.safetensors")):
        from ridgerank.calibration.onnx_cross_encoder import OnnxCrossEncoder

        return OnnxCrossEncoder(Path(name))
    try:
        from sentence_transformers import CrossEncoder
    except ImportError as error:
        raise ExtraMissing(
            f"the teacher {name!r} is a cross encoder of sentence-transformers, which is not installed: "
            "`pip install 'ridgerank[dense]'`"
        ) from error
    place, numbers = placement(device, parse_dtype(dtype))
    try:
        return CrossEncoder(name, device=str(place), model_kwargs={"dtype": numbers})
    except (OSError, ValueError) as error:
        first_line = str(error).strip().partition("\n")[0]
        raise CalibrationError(
            f"cannot load the teacher {name!r}: {first_line} Wanted a TREC file, a backbone or a cross "
            "encoder, by name or folder"
        ) from error


def _missing_queries(cache: TargetCache, lists: CandidateLists) -> dict[str, list[str]]:
    """Page id → queries of which the teacher's score is not kept yet."""
    by_text = {query.text: candidates for query, candidates in lists.items()}
    return find_missing_targets(by_text, cache, ("margin",))


def _cached_scores(cache: TargetCache, lists: CandidateLists) -> dict[tuple[str, str], float]:
    scores: dict[tuple[str, str], float] = {}
    for query, candidates in lists.items():
        for candidate in candidates:
            score = cache.margin(query.text, candidate.page_id)
            if score is not None:
                scores[query.query_id, candidate.page_id] = score
    return scores


def restrict_lists(
    lists: CandidateLists, scores: Mapping[tuple[str, str], float], *, teacher: str
) -> dict[Query, list[Candidate]]:
    """The candidates a teacher has scored; a query with fewer than two of them is left out."""
    scored = {
        query: [each for each in candidates if (query.query_id, each.page_id) in scores]
        for query, candidates in lists.items()
    }
    kept = {query: candidates for query, candidates in scored.items() if len(candidates) > 1}
    if not kept:
        raise CalibrationError(
            f"{teacher} scores no two candidates of any of {len(lists)} queries; wanted scores under the "
            "same query ids and page names as here"
        )
    return kept
