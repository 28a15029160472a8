"""What a corpus will take before it is indexed: bytes, hours, memory, time per request.

Bytes are the layout's, exact for pages of the usual size. Times are scaled from two measurements: the paper's
on an A100 for models that look at pages, ours on one core for models that read text (`SECONDS_MEASURED`).
Nothing here loads a model.
"""

from dataclasses import dataclass
from typing import Literal

from ridgerank.backbones.model_source import SHORT_NAMES
from ridgerank.errors import BackboneError
from ridgerank.store.page_bytes import PageShape, count_page_bytes
from ridgerank.store.storage_setting import StoragePreset, StorageSetting

Origin = Literal["measured", "arithmetic"]

CANDIDATES = 20
PAGE_MEMORY_BYTES = 1 << 30
"""What a reranker keeps of its pages in memory by default."""
_DISK_BYTES_PER_SECOND = 1e9


@dataclass(frozen=True, slots=True)
class ModelShape(PageShape):
    """What sizes and times depend on."""

    parameters: float
    layers: int
    reads_text: bool = False


_QWEN2_VL, _QWEN3_VL, _GLM = (15, 28), (4, 28), (5, 28)
_MONOQWEN, _JINA = (15, 22), (5, 5)
_QWEN_TEXT, _SMOLLM = (14, 28), (14, 31)
_SMOLVLM, _IDEFICS3 = (3, 68), (3, 181)
"""Positions before the page and the others, by the prompts of `backbones` under the published tokenizers.

SmolVLM has a mark for each of its tiles, which Idefics3 spells: its tokenizer was not at hand, and Qwen's,
whose words are nearly the same, was counted with.
"""

MODELS = {
    "qwen2.5-vl-7b": ModelShape(4, 128, 1280, *_QWEN2_VL, 8.3e9, 28),
    "qwen2.5-vl-3b": ModelShape(2, 128, 1280, *_QWEN2_VL, 3.8e9, 36),
    "glm-4.1v-9b": ModelShape(2, 128, 1280, *_GLM, 10.3e9, 40),
    "glm-4.6v-flash": ModelShape(2, 128, 1280, *_GLM, 10.3e9, 40),
    "qwen2-vl-2b": ModelShape(2, 128, 1280, *_QWEN2_VL, 2.2e9, 28),
    "monoqwen2-vl": ModelShape(2, 128, 2048, *_MONOQWEN, 2.2e9, 28),
    "jina-reranker-m0": ModelShape(2, 128, 768, *_JINA, 2.2e9, 28),
    "qwen3-vl-2b": ModelShape(8, 128, 1280, *_QWEN3_VL, 2.1e9, 28),
    "qwen3-vl-4b": ModelShape(8, 128, 1280, *_QWEN3_VL, 4.4e9, 36),
    "qwen3-vl-8b": ModelShape(8, 128, 1280, *_QWEN3_VL, 8.8e9, 36),
    # A letter page: 4 x 4 tiles and the whole page, of 169, 64 and 81 positions each.
    "idefics3-8b": ModelShape(8, 128, 17 * 169, *_IDEFICS3, 8.5e9, 32),
    "smolvlm-256m": ModelShape(3, 64, 17 * 64, *_SMOLVLM, 0.26e9, 30),
    "smolvlm-500m": ModelShape(5, 64, 17 * 64, *_SMOLVLM, 0.51e9, 32),
    "smolvlm-2b": ModelShape(32, 64, 17 * 81, *_SMOLVLM, 2.2e9, 24),
    "smollm2-135m": ModelShape(3, 64, 512, *_SMOLLM, 0.135e9, 30, reads_text=True),
    "smollm2-360m": ModelShape(5, 64, 512, *_SMOLLM, 0.362e9, 32, reads_text=True),
    "qwen2.5-0.5b": ModelShape(2, 64, 512, *_QWEN_TEXT, 0.494e9, 24, reads_text=True),
}
"""Models that can be planned for, by short name."""

DEVICES = {"a100": 312e12, "a10": 125e12, "l4": 121e12}
"""Dense bfloat16 operations per second that their makers state."""
CPU = "cpu"


@dataclass(frozen=True, slots=True)
class MeasuredSeconds:
    """Seconds of one model on one device."""

    model: str
    device: str
    page: float
    """To encode a page to the exit layer."""
    page_source: str
    request: float
    """To run a query over 20 stored pages, reading apart."""
    request_source: str


_PAPER = "by the paper, on an A100 of 40 GiB; not here"
SECONDS_MEASURED = {
    False: MeasuredSeconds("qwen2.5-vl-7b", "a100", 6.7 / 20, _PAPER, 0.056, _PAPER),
    True: MeasuredSeconds(
        "smollm2-135m",
        CPU,
        1.18,
        "results/first_hour.json, one core",
        1.03,
        "results/real_documents_second_smollm2.json, one core",
    ),
}
"""By whether a model reads text. The paper's page is one at full depth: more than to the exit layer."""


@dataclass(frozen=True, slots=True)
class PlannedFigure:
    """A line of a plan."""

    name: str
    value: float
    unit: str
    origin: Origin
    basis: str


def find_shape(name: str) -> ModelShape:
    """The shape of a model that is known, by the end of its name: `Qwen/Qwen2.5-VL-7B-Instruct` will do."""
    plain = name.lower().rpartition("/")[2]
    for known, shape in MODELS.items():
        if plain.startswith(known) or name == SHORT_NAMES.get(known):
            return shape
    raise BackboneError(f"no plan for {name!r}; known: {', '.join(MODELS)}")


def plan_corpus(pages: int, name: str, device: str, preset: StoragePreset = "small") -> list[PlannedFigure]:
    """Bytes, hours, memory and seconds per request of a corpus of so many pages."""
    if device not in (CPU, *DEVICES):
        raise BackboneError(f"no device {device!r} to plan for; known: {', '.join((*DEVICES, CPU))}")
    shape = find_shape(name)
    setting = StorageSetting.from_preset(preset, layers=shape.layers, reads_text=shape.reads_text)
    page_bytes = count_page_bytes(shape, setting)
    page_seconds, origin, basis = _scale_seconds(shape, device, "page")
    request_seconds, _, request_basis = _scale_seconds(shape, device, "request")
    reading = CANDIDATES * page_bytes / _DISK_BYTES_PER_SECOND
    weight_bytes = shape.parameters * (4 if device == CPU else 2)
    return [
        PlannedFigure("per page", page_bytes / 1e6, "MB", "arithmetic", f"layout, {setting}"),
        PlannedFigure("all pages", pages * page_bytes / 1e9, "GB", "arithmetic", "pages times that"),
        PlannedFigure("indexing", pages * page_seconds / 3600, "hours", origin, basis),
        PlannedFigure(
            "memory",
            (weight_bytes + PAGE_MEMORY_BYTES) / 1e9,
            "GB",
            "arithmetic",
            "weights, and 1 GiB of pages kept",
        ),
        PlannedFigure(
            "request, computing", 1e3 * request_seconds, "ms", origin, f"{CANDIDATES} pages; {request_basis}"
        ),
        PlannedFigure(
            "request, reading", 1e3 * reading, "ms", "arithmetic", "from a disk of 1 GB/s, none cached"
        ),
    ]


def _scale_seconds(
    shape: ModelShape, device: str, what: Literal["page", "request"]
) -> tuple[float, Origin, str]:
    """Seconds of a step: measured for one model on one device, else in proportion to operations."""
    measured = SECONDS_MEASURED[shape.reads_text]
    seconds, source = (
        (measured.page, measured.page_source)
        if what == "page"
        else (measured.request, measured.request_source)
    )
    reference = MODELS[measured.model]
    if reference == shape and measured.device == device:
        return seconds, "measured", source
    operations = shape.parameters * shape.page_positions / (reference.parameters * reference.page_positions)
    speed = _operations_per_second(device) / _operations_per_second(measured.device)
    basis = f"in proportion to {measured.model} on {measured.device} ({source})"
    return seconds * operations / speed, "arithmetic", basis


def _operations_per_second(device: str) -> float:
    """What is reached: four tenths of a GPU's peak, and what SmolLM2 was measured at on one core."""
    if device != CPU:
        return 0.4 * DEVICES[device]
    measured = SECONDS_MEASURED[True]
    reference = MODELS[measured.model]
    exit_share = 0.4
    return 2 * exit_share * reference.parameters * reference.page_positions / measured.page
