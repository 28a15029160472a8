"""Bytes of a page in any setting, before it is stored so: the layout's, to the byte."""

from dataclasses import dataclass

from ridgerank.backbones.model_settings import SHORT_NAMES
from ridgerank.errors import BackboneError
from ridgerank.store.layout import BlockShape
from ridgerank.store.storage_setting import StorageSetting


@dataclass(frozen=True, slots=True)
class PageShape:
    """What the bytes of a page depend on, apart from the setting."""

    kv_heads: int
    head_dim: int
    page_positions: int
    """Visual positions of a page, or tokens of its text."""
    before_page: int
    """Positions of the prompt before the page: packed numbers keep them once for all pages."""
    after_page: int
    """All others that are stored: the instruction up to the query, and marks within the page."""


@dataclass(frozen=True, slots=True)
class ModelShape(PageShape):
    """A model, and what the bytes of its pages depend on."""

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
"""Models whose pages can be counted without loading them, by short name."""


def find_shape(name: str) -> ModelShape:
    """The shape of a model that is known, by the end of its name: `Qwen/Qwen2.5-VL-7B-Instruct` will do."""
    plain = name.lower().rpartition("/")[2]
    for known, shape in MODELS.items():
        if plain.startswith(known) or name == SHORT_NAMES.get(known):
            return shape
    raise BackboneError(f"no known shape of {name!r}; known: {', '.join(MODELS)}")


def count_page_bytes(shape: PageShape, setting: StorageSetting) -> int:
    """Bytes of a page's prefix; of the paper's numbers, the positions before the page are among them."""
    shared = 0 if setting.numbers.symmetric else shape.before_page
    around = shape.before_page + shape.after_page
    return BlockShape(
        setting.exit_layer,
        shape.kv_heads,
        setting.keep.count(shape.page_positions) + around - shared,
        shape.head_dim,
        0,
        (1, shape.page_positions),
        setting.numbers,
        shared,
        shape.page_positions + around,
    ).nbytes
