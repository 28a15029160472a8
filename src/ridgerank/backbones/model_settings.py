"""Which models there are by name, where one is loaded from, and how it reads pages, without torch."""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePath
from types import MappingProxyType
from typing import TYPE_CHECKING, Self

from ridgerank.atomic import cache_folder, replace_text_file
from ridgerank.backbones.prompt import CHATML_CUE, CHATML_USER, Prompt
from ridgerank.errors import BackboneError
from ridgerank.lineage import Lineage
from ridgerank.records import TARGETS, Target

if TYPE_CHECKING:
    import torch

    from ridgerank.backbones.base import Backbone


@dataclass(frozen=True, slots=True)
class Preset:
    """A published reranker on the body of a family."""

    repository: str
    """Where it is published: a whole model, or a peft adapter that names its base."""
    family: str
    prompt: Prompt
    max_pixels: int
    """Pixel budget of a page, as its authors or first users ran it."""
    notice: str = ""
    ranking_head: bool = False
    """Whether its score is that of a head on the last state, not a difference of two answers."""
    architecture: str = ""
    """What its configuration calls its class, where that tells it apart."""


_PRESETS = (
    Preset(
        repository="lightonai/MonoQwen2-VL-v0.1",
        family="qwen2_vl",
        prompt=Prompt(
            before_page=f"{CHATML_USER}<|vision_start|>",
            after_page="<|vision_end|>",
            instruction=(
                "Assert the relevance of the previous image document to the following query, "
                "answer True or False. The query is: "
            ),
            after_query=CHATML_CUE,
            answers=("True", "False"),
            name="monoqwen2-vl",
        ),
        max_pixels=2048 * 28 * 28,
    ),
    Preset(
        repository="jinaai/jina-reranker-m0",
        family="qwen2_vl",
        prompt=Prompt(
            before_page="**Document**:\n<|vision_start|>",
            after_page="<|vision_end|>",
            instruction="\n**Query**:\n",
            after_query="",
            answers=None,
            name="jina-reranker-m0",
            closing_tokens=(100,),
        ),
        max_pixels=768 * 28 * 28,
        notice=(
            "jina-reranker-m0 is licensed CC-BY-NC-4.0: not for commercial use without another licence from "
            "its authors, and the same holds for pages stored with it"
        ),
        ranking_head=True,
        architecture="JinaVLForRanking",
    ),
)
PRESETS: Mapping[str, Preset] = MappingProxyType({preset.prompt.name: preset for preset in _PRESETS})


def find_preset(
    name: str, family: str, *, prompt: str | None = None, classes: Sequence[str] = ()
) -> Preset | None:
    """The preset of a model of this family: by the prompt asked for, by its name or by its class."""
    presets = {name: preset for name, preset in PRESETS.items() if preset.family == family}
    if prompt is not None:
        if prompt in presets:
            return presets[prompt]
        raise BackboneError(
            f"no prompt called {prompt!r} for {name}, a model of type {family!r}; known for it: "
            f"{', '.join(presets) or 'none'}"
        )
    short_name = PurePath(name).name.lower()
    for known, preset in presets.items():
        if short_name.startswith(known) or preset.architecture in classes:
            return preset
    return None


def available_targets(prompt_name: str | None) -> tuple[Target, ...]:
    """What a model with this prompt can be asked at full depth: a ranking head leaves no likelihood."""
    preset = PRESETS.get(prompt_name or "")
    return ("margin",) if preset is not None and preset.ranking_head else TARGETS


SHORT_NAMES = {
    "qwen2.5-vl-3b": "Qwen/Qwen2.5-VL-3B-Instruct",
    "qwen2.5-vl-7b": "Qwen/Qwen2.5-VL-7B-Instruct",
    "qwen2-vl-2b": "Qwen/Qwen2-VL-2B-Instruct",
    "qwen3-vl-2b": "Qwen/Qwen3-VL-2B-Instruct",
    "qwen3-vl-4b": "Qwen/Qwen3-VL-4B-Instruct",
    "qwen3-vl-8b": "Qwen/Qwen3-VL-8B-Instruct",
    "glm-4.1v-9b": "zai-org/GLM-4.1V-9B-Thinking",
    "glm-4.6v-flash": "zai-org/GLM-4.6V-Flash",
    **{name: preset.repository for name, preset in PRESETS.items()},
    "idefics3-8b": "HuggingFaceM4/Idefics3-8B-Llama3",
    "smolvlm-256m": "HuggingFaceTB/SmolVLM-256M-Instruct",
    "smolvlm-500m": "HuggingFaceTB/SmolVLM-500M-Instruct",
    "smolvlm-2b": "HuggingFaceTB/SmolVLM-Instruct",
    "smollm2-135m": "HuggingFaceTB/SmolLM2-135M-Instruct",
    "smollm2-360m": "HuggingFaceTB/SmolLM2-360M-Instruct",
    "qwen2.5-0.5b": "Qwen/Qwen2.5-0.5B-Instruct",
    "qwen2.5-coder-0.5b": "Qwen/Qwen2.5-Coder-0.5B-Instruct",
}
"""What people type, and the repository it stands for."""


def absolute_name(name: str) -> str:
    """The name, as an absolute path if it is a folder or a file: what records it may be read elsewhere."""
    return os.path.abspath(name) if os.path.exists(name) and name not in SHORT_NAMES else name  # noqa: PTH100, PTH110


def find_model(name: str) -> tuple[str, str | None]:
    """The folder or repository of a model, and the GGUF file in it if that is all; a word is a short name."""
    if name.lower() in SHORT_NAMES:
        return SHORT_NAMES[name.lower()], None
    path = Path(name)
    if path.suffix == ".gguf" and os.path.isfile(path):  # noqa: PTH113
        return str(path.parent), path.name
    if os.path.isdir(path):  # noqa: PTH112 (a `Path` raises where a name is too long)
        return _find_in_folder(path)
    if name.count("/") != 1 or name.startswith((".", "/", "~")):
        raise BackboneError(
            f"no backbone called {name!r}, and no such folder; known names: "
            f"{', '.join(SHORT_NAMES)}, "
            "or a repository as owner/name; if the model of a store has moved, name it once where it is now"
        )
    return name, None


def _find_in_folder(folder: Path) -> tuple[str, str | None]:
    packed = sorted(folder.glob("*.gguf"))
    if any((folder / name).exists() for name in ("config.json", "adapter_config.json")):
        return str(folder), None
    if len(packed) > 1:
        raise BackboneError(
            f"{folder} holds {len(packed)} GGUF files, {', '.join(each.name for each in packed)}; name one"
        )
    if packed:
        return str(folder), packed[0].name
    raise BackboneError(
        f"{folder} holds no model: no config.json and no GGUF file (ONNX is not read); expected the folder "
        "of one, as `hf download OWNER/NAME --local-dir FOLDER` makes it"
    )


def remember_place(lineage: Lineage, name: str) -> None:
    """Keep where the model of a lineage lies now, for this user, if it is not where the lineage says."""
    if name != lineage.backbone and Path(name).is_absolute():
        with suppress(OSError), replace_text_file(_moved_to_file(lineage.weights)) as file:
            file.write(name)


def _moved_to_file(weights: str) -> Path:
    return cache_folder("models") / weights


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """The arguments of `load_backbone`, as a record that can be compared and sent to another process."""

    name: str
    device: str | None = None
    dtype: "str | torch.dtype | None" = None
    max_pixels: int | None = None
    page_text: str | None = None
    prompt: str | None = None

    @classmethod
    def from_lineage(
        cls,
        lineage: Lineage,
        *,
        name: str | None = None,
        device: str | None = None,
        dtype: "str | torch.dtype | None" = None,
    ) -> Self:
        """The settings that read pages as for this lineage; a moved folder is found where it was last."""
        if name is None and Path(lineage.backbone).is_absolute() and not Path(lineage.backbone).exists():
            moved = _moved_to_file(lineage.weights)
            name = moved.read_text(encoding="utf-8") if moved.is_file() else None
        return cls(
            name or lineage.backbone,
            device,
            dtype,
            max_pixels=lineage.max_pixels,
            page_text=lineage.page_text,
            prompt=lineage.prompt_name,
        )

    def load(self, layers: int | None = None) -> "Backbone":
        """Load the model in this process; with `layers` only what runs queries over pages of so many."""
        find_model(self.name)  # a wrong name is reported before torch is imported
        from ridgerank.backbones.load import load_backbone, parse_dtype

        return load_backbone(
            self.name,
            device=self.device,
            dtype=parse_dtype(self.dtype),
            max_pixels=self.max_pixels,
            page_text=self.page_text,
            prompt=self.prompt,
            layers=layers,
        )
