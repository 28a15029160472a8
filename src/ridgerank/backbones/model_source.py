"""From the name of a model to the folder or repository it is loaded from. Imports no model."""

from pathlib import Path
from typing import NamedTuple

from ridgerank.backbones.presets import PRESETS
from ridgerank.errors import BackboneError
from ridgerank.shipped_models import BACKBONES, shipped_folder

SHORT_NAMES = {
    "qwen2.5-vl-3b": "Qwen/Qwen2.5-VL-3B-Instruct",
    "qwen2.5-vl-7b": "Qwen/Qwen2.5-VL-7B-Instruct",
    "qwen2-vl-2b": "Qwen/Qwen2-VL-2B-Instruct",
    "qwen3-vl-2b": "Qwen/Qwen3-VL-2B-Instruct",
    "qwen3-vl-4b": "Qwen/Qwen3-VL-4B-Instruct",
    "qwen3-vl-8b": "Qwen/Qwen3-VL-8B-Instruct",
    "glm-4.1v-9b": "zai-org/GLM-4.1V-9B-Thinking",
    "glm-4.6v-flash": "zai-org/GLM-4.6V-Flash",
    **{preset.name: preset.repository for preset in PRESETS.values()},
    "idefics3-8b": "HuggingFaceM4/Idefics3-8B-Llama3",
    "smolvlm-256m": "HuggingFaceTB/SmolVLM-256M-Instruct",
    "smolvlm-500m": "HuggingFaceTB/SmolVLM-500M-Instruct",
    "smolvlm-2b": "HuggingFaceTB/SmolVLM-Instruct",
}
"""What people type, and the repository it stands for."""


class ModelSource(NamedTuple):
    """Where a model is."""

    location: str
    """A folder, or a hub repository."""
    gguf: str | None = None
    """The GGUF file in the folder, where that is all there is."""


def find_model(name: str) -> ModelSource:
    """Find the folder or repository, and the GGUF file in it if that is all; a bare word is a short name."""
    if name.lower() in SHORT_NAMES:
        return ModelSource(SHORT_NAMES[name.lower()])
    if (folder := shipped_folder(name.lower())) is not None:
        return ModelSource(str(folder))
    path = Path(name)
    if path.suffix == ".gguf" and path.is_file():
        return ModelSource(str(path.parent), path.name)
    if path.is_dir():
        return _find_in_folder(path)
    if name.count("/") != 1 or name.startswith((".", "/", "~")):
        raise BackboneError(
            f"no backbone called {name!r}, and no such folder; known names: "
            f"{', '.join((*BACKBONES, *SHORT_NAMES))}, "
            "or a repository as owner/name; where a model of a store has moved, --backbone says where it is"
        )
    return ModelSource(name)


def _find_in_folder(folder: Path) -> ModelSource:
    packed = sorted(folder.glob("*.gguf"))
    has_config = any((folder / name).exists() for name in ("config.json", "adapter_config.json"))
    if any(folder.rglob("*.onnx")) and not packed and not any(folder.glob("*.safetensors")):
        raise BackboneError(
            f"{folder} holds an ONNX model, whose layers cannot be read one by one; wanted the same model as "
            "safetensors or GGUF"
        )
    if has_config:
        return ModelSource(str(folder))
    if len(packed) > 1:
        raise BackboneError(
            f"{folder} holds {len(packed)} GGUF files, {', '.join(each.name for each in packed)}; name one"
        )
    if packed:
        return ModelSource(str(folder), packed[0].name)
    raise BackboneError(
        f"{folder} holds no model: no config.json and no GGUF file; wanted the folder of one, as "
        "`hf download OWNER/NAME --local-dir FOLDER` makes it"
    )
