"""Whether a model can teach its own readout: two pages, four queries, the full model and the shallow pass.

Each page answers two of the queries. Where the full model scores the page that answers above the other one,
its score is a target worth reproducing; where not, a readout of it would be none either. Four queries show a
model that cannot; that one can is seen on real pages, by `calibrate`.
"""

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from ridgerank.backbones.base import Backbone
from ridgerank.backbones.dense_prefixes import DensePrefixes
from ridgerank.backbones.presets import available_targets
from ridgerank.documents.drawn_text import draw_text
from ridgerank.errors import BackboneError
from ridgerank.ragged import Floats
from ridgerank.records import Page, Target
from ridgerank.store.layout import block_shape
from ridgerank.store.setting_compressor import SettingCompressor
from ridgerank.store.storage_setting import StoragePreset, StorageSetting
from ridgerank.store.stored_prefixes import StoredPrefixes

Verdict = Literal["margin", "likelihood", "none"]
"""The target with which a model can teach itself: the paper's, the other one, or neither."""

_LEAST_STATE_DISTANCE = 1e-3
"""Of a state's length: below it the states of two pages are one state, to half-precision rounding."""
_TEXTS = (
    """Port of Eastham, report for the year 2023

    The harbour handled 412 ships in 2023, 18 more than in the year before. Most of them carried grain
    and timber. The new crane on the north quay cost 3.2 million euros and has worked since April.
    The number of people employed at the port rose to 640. Income from mooring fees was 9.7 million euros.
    The harbour master expects fewer ships in the coming winter, since the channel will be dredged.""",
    """Coffee machine K 40: cleaning and care

    Rinse the brewing unit under warm water once a week. Clean the filter every three days with a soft
    brush; do not use soap. A red lamp shows that the water tank is empty. A yellow lamp shows that the
    machine needs to be descaled: dissolve two tablets in one litre of water and press the left button.
    Empty the drawer for used coffee grounds after twelve cups. Store the machine dry and free of frost.""",
)
_QUERIES = (
    ("How many ships did the harbour handle in 2023?", 0),
    ("What did the new crane on the north quay cost?", 0),
    ("How often should the filter of the coffee machine be cleaned?", 1),
    ("Which lamp shows that the water tank is empty?", 1),
)


@dataclass(frozen=True, slots=True, eq=False)
class CheckPages:
    """Two pages and queries of which each is answered by one of them."""

    pages: tuple[Page, ...]
    queries: tuple[tuple[str, int], ...]
    """A query, and the number of the page that answers it."""


@dataclass(frozen=True, slots=True)
class CheckedQuery:
    """What the full model says of a query over both pages."""

    query: str
    answering_page: int
    margins: tuple[float, ...]
    likelihoods: tuple[float, ...] | None
    """None for a model whose head gives a score only."""


@dataclass(frozen=True, slots=True)
class ModelCheck:
    """What a model does with two pages and four queries, and what it takes."""

    model: str
    family: str
    device: str
    dtype: str
    setting: str
    queries: tuple[CheckedQuery, ...]
    margins_right: int
    """Queries for which the page that answers has the higher margin."""
    likelihoods_right: int | None
    state_distance: float
    """How far the states of the two pages lie apart, of their length, mean over queries; shallow pass."""
    verdict: Verdict
    weights_bytes: int
    page_positions: int
    """Of the page's image or text, mean of the two pages."""
    bytes_per_page: int
    """Of these two pages: bytes grow with positions."""
    index_seconds_per_page: float
    """To the exit layer, as indexing reads pages."""
    full_seconds_per_page: float
    """To full depth, as calibration reads them."""
    shallow_seconds_per_pair: float
    full_seconds_per_pair: float
    peak_memory_bytes: int | None
    """Of this process; None where the system does not tell."""
    peak_device_bytes: int | None
    """Of the GPU; None without one."""

    @property
    def sees_pages(self) -> bool:
        """Whether a state tells the two pages apart at all."""
        return self.state_distance > _LEAST_STATE_DISTANCE


def write_check_pages() -> CheckPages:
    """Two pages in plain English: a port's report and the care of a machine."""
    pages = []
    for number, text in enumerate(_TEXTS, start=1):
        lines = "\n".join(line.strip() for line in text.splitlines())
        pages.append(Page(f"{number:064x}", f"check.pdf#{number}", draw_text(lines), lines))
    return CheckPages(tuple(pages), _QUERIES)


def check_model(backbone: Backbone, drawn: CheckPages, preset: StoragePreset = "small") -> ModelCheck:
    """Run the full model and the shallow pass over drawn pages; measure both."""
    geometry = backbone.geometry
    setting = StorageSetting.from_preset(preset, layers=geometry.layers, reads_text=backbone.reads_text)
    texts = [text for text, _ in drawn.queries]
    contents = [backbone.content(page) for page in drawn.pages]
    pairs = len(texts) * len(contents)
    start = time.perf_counter()
    full = backbone.encode(contents, exit_layer=geometry.layers)
    encoded = time.perf_counter()
    scores = _full_scores(backbone, texts, DensePrefixes(full))
    scored = time.perf_counter()
    cut = backbone.encode(contents, exit_layer=setting.exit_layer)
    indexed = time.perf_counter()
    compressor = SettingCompressor(backbone, [setting])
    stored = [
        compressor.compress(prefix, page, setting) for prefix, page in zip(cut, drawn.pages, strict=True)
    ]
    batch = StoredPrefixes.of(stored, join_layer=0, device=backbone.device)
    packed = time.perf_counter()
    states = [backbone.states([text], batch).cpu().double().numpy() for text in texts]
    ended = time.perf_counter()
    rows = tuple(
        CheckedQuery(
            text,
            page,
            tuple(scores["margin"][number].tolist()),
            tuple(scores["likelihood"][number].tolist()) if "likelihood" in scores else None,
        )
        for number, (text, page) in enumerate(drawn.queries)
    )
    right = {target: count_right(values, drawn) for target, values in scores.items()}
    return ModelCheck(
        model=backbone.name,
        family=backbone.family,
        device=str(backbone.device),
        dtype=str(backbone.dtype).removeprefix("torch."),
        setting=str(setting),
        queries=rows,
        margins_right=right["margin"],
        likelihoods_right=right.get("likelihood"),
        state_distance=float(np.mean([state_distance(pair) for pair in states])),
        verdict=_judge(right, len(texts)),
        weights_bytes=backbone.nbytes,
        page_positions=round(np.mean([int(prefix.visual.sum()) for prefix in cut])),
        bytes_per_page=round(np.mean([block_shape(page).nbytes for page in stored])),
        index_seconds_per_page=(indexed - scored) / len(contents),
        full_seconds_per_page=(encoded - start) / len(contents),
        shallow_seconds_per_pair=(ended - packed) / pairs,
        full_seconds_per_pair=(scored - encoded) / pairs,
        peak_memory_bytes=peak_memory(),
        peak_device_bytes=torch.cuda.max_memory_allocated() if backbone.device.type == "cuda" else None,
    )


def _judge(right: Mapping[Target, int], queries: int) -> Verdict:
    if right["margin"] == queries:
        return "margin"
    return "likelihood" if right.get("likelihood") == queries else "none"


def count_right(scores: Floats, drawn: CheckPages) -> int:
    """Queries whose answering page alone has the highest of the scores (queries, pages)."""
    return sum(
        bool((np.delete(row, page) < row[page]).all())
        for row, (_, page) in zip(scores, drawn.queries, strict=True)
    )


def state_distance(states: Floats) -> float:
    """How far two states (2, width) lie apart, of their mean length."""
    return float(np.linalg.norm(states[0] - states[1]) / np.linalg.norm(states, axis=1).mean())


def peak_memory() -> int | None:
    """The largest resident memory of this process, in bytes."""
    status = Path("/proc/self/status")
    if status.exists():
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
        return int(lines["VmHWM"].split()[0]) * 1024 if "VmHWM" in lines else None
    try:
        import resource
    except ImportError:  # Windows
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _full_scores(backbone: Backbone, texts: Sequence[str], pages: DensePrefixes) -> dict[Target, Floats]:
    """Scores (queries, pages) by target at full depth; what is no number is refused."""
    targets = available_targets(backbone.prompt.name)
    read = [backbone.targets([text], pages, targets=targets) for text in texts]
    scores: dict[Target, Floats] = {
        target: np.array([by_target[target].tolist() for by_target in read]) for target in targets
    }
    for target, values in scores.items():
        if not np.isfinite(values).all():
            raise BackboneError(
                f"{backbone.name} gives a {target} that is no number in {backbone.dtype}; its weights are "
                "damaged, or it needs another dtype (--dtype float32)"
            )
    return scores
