"""Teachers other than the backbone itself: whose scores a readout may reproduce.

The states stay the backbone's; only the target changes. A teacher is a TREC run of scores, judgements,
another backbone at full depth, or a cross encoder of sentence-transformers. What a model computes is
kept on disk as it is computed, so that an interrupted calibration goes on where it stopped.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Protocol

from PIL.Image import Image

from ridgerank.backbones.base import Backbone
from ridgerank.backbones.causal_text import MODEL_CLASSES
from ridgerank.backbones.fingerprints import fingerprint_weights
from ridgerank.backbones.load import FAMILIES, load_backbone, parse_dtype, placement
from ridgerank.backbones.model_source import SHORT_NAMES
from ridgerank.calibration.executor import compute_page_targets
from ridgerank.calibration.target_cache import TargetCache
from ridgerank.calibration.teacher import find_missing_targets
from ridgerank.errors import CalibrationError, ExtraMissing
from ridgerank.records import Candidate, Query
from ridgerank.runs.trec import QRELS_COLUMNS, RUN_COLUMNS, read_qrels, read_run
from ridgerank.shipped_models import shipped_folder
from ridgerank.store.page_store import PageStore
from ridgerank.store.rerender import BATCH_PAGES, require_locations, rerender_pages

if TYPE_CHECKING:
    import torch

OWN = "the backbone itself"
"""Whose scores a readout reproduces where no teacher is named."""
CANDIDATE_LISTS = Mapping[Query, Sequence[Candidate]]
_IMAGE_PIXELS = 1280 * 28 * 28
"""Pixel budget of a page for a cross encoder that looks at it."""


class ExternalTeacher(Protocol):
    """Scores of pages under queries, from elsewhere than the backbone."""

    name: str
    """As the report says it."""

    def score(self, lists: CANDIDATE_LISTS) -> dict[tuple[str, str], float]:
        """Scores by query id and page id; pairs the teacher does not know are left out."""


class StoredScores:
    """Scores of a file: a run, or judgements, where a page without one is not relevant."""

    def __init__(
        self, name: str, scores: Mapping[str, Mapping[str, float]], store: PageStore, *, default: float | None
    ) -> None:
        self.name = name
        self._default = default
        page_ids = store.lookup_many(page for by_page in scores.values() for page in by_page)
        self._scores = {
            (query, page_ids[page]): float(score)
            for query, by_page in scores.items()
            for page, score in by_page.items()
            if page in page_ids
        }
        self._queries = set(scores)

    def score(self, lists: CANDIDATE_LISTS) -> dict[tuple[str, str], float]:
        """The scores of the file; a query it does not name has none."""
        pairs = [(query.query_id, candidate.page_id) for query in lists for candidate in lists[query]]
        scored = {pair: self._scores.get(pair, self._default) for pair in pairs if pair[0] in self._queries}
        return {pair: score for pair, score in scored.items() if score is not None}


class BackboneTeacher:
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

    def score(self, lists: CANDIDATE_LISTS) -> dict[tuple[str, str], float]:
        """Margins of all pairs; each page is encoded once."""
        by_text = {query.text: candidates for query, candidates in lists.items()}
        queries_by_page = find_missing_targets(by_text, self._cache, ("margin",))
        locations = require_locations(self._store, sorted(queries_by_page), documents=self._documents)
        for start in range(0, len(locations), BATCH_PAGES):
            batch = locations[start : start + BATCH_PAGES]
            values = compute_page_targets(self._backbone, batch, queries_by_page, ("margin",)).values
            self._cache.add(values["margin"])
        return _cached_scores(self._cache, lists)


class CrossEncoderTeacher:
    """A sentence-transformers `CrossEncoder` over the stored text of pages, or their images."""

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
        self._cache = TargetCache.of_teacher(folder, f"{fingerprint_weights(model)}-{kind}")

    def score(self, lists: CANDIDATE_LISTS) -> dict[tuple[str, str], float]:
        """Raw scores, before any squashing, of all pairs."""
        by_text = {query.text: candidates for query, candidates in lists.items()}
        queries_by_page = find_missing_targets(by_text, self._cache, ("margin",))
        page_ids = sorted(queries_by_page)
        if self.reads_images:
            for pages in rerender_pages(
                self._store, page_ids, max_pixels=_IMAGE_PIXELS, documents=self._documents
            ):
                self._add({page.page_id: page.image for page in pages}, queries_by_page)
        elif page_ids:
            texts = self._store.texts()
            for start in range(0, len(page_ids), BATCH_PAGES):
                ids = page_ids[start : start + BATCH_PAGES]
                self._add({page_id: texts[page_id] for page_id in ids}, queries_by_page)
        return _cached_scores(self._cache, lists)

    def _add(self, contents: Mapping[str, str | Image], queries_by_page: Mapping[str, Sequence[str]]) -> None:
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
    kind, _, rest = name.partition(":")
    if kind not in ("backbone", "cross-encoder"):
        kind, rest = "", name
    if not kind and Path(name).is_file():
        return _read_file(Path(name), store)
    if kind == "backbone" or (not kind and _is_backbone(rest)):
        backbone = load_backbone(rest, device=device, dtype=parse_dtype(dtype))
        return BackboneTeacher(backbone, store, folder, documents)
    return CrossEncoderTeacher(rest, _load_cross_encoder(rest, device, dtype), store, folder, documents)


def _read_file(path: Path, store: PageStore) -> StoredScores:
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        fields = len(next((line for line in file if line.strip()), "").split())
    if fields == len(RUN_COLUMNS.split()):
        run = read_run(path)
        scores: dict[str, dict[str, float]] = {}
        for query, page, _, score in run.rows():
            scores.setdefault(query, {})[page] = score
        return StoredScores(f"the run {path.name}", scores, store, default=None)
    if fields == len(QRELS_COLUMNS.split()):
        judged = {
            query: {page: float(max(grade, 0)) for page, grade in grades.items()}
            for query, grades in read_qrels(path).items()
        }
        return StoredScores(f"the judgements {path.name}", judged, store, default=0.0)
    raise CalibrationError(
        f"{path}: {fields} fields in its first line; wanted a run ({RUN_COLUMNS}) or judgements "
        f"({QRELS_COLUMNS})"
    )


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


def _cached_scores(cache: TargetCache, lists: CANDIDATE_LISTS) -> dict[tuple[str, str], float]:
    scores: dict[tuple[str, str], float] = {}
    for query, candidates in lists.items():
        for candidate in candidates:
            score = cache.margin(query.text, candidate.page_id)
            if score is not None:
                scores[query.query_id, candidate.page_id] = score
    return scores


def restrict_lists(
    lists: CANDIDATE_LISTS, scores: Mapping[tuple[str, str], float], *, teacher: str
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
