"""Give shipped models another vision tower: `python -m miniature.training.join_vision ...`.

    --model DIR ...       models as the hub keeps them; a retriever's tower is mini-qwen's
    --reading reading.pt  the checkpoint of the reading lesson whose tower they get

Decoders are taught on embedded words, and embeddings stay as they were made. So a tower that was taught anew
fits a decoder that was trained before. A checkpoint with other embeddings is refused.
"""

import argparse
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from miniature import MiniatureError
from miniature.training.lessons import read_checkpoint
from ridgerank.atomic import replace_file

TOWER, EMBEDDINGS = "visual.", "embed_tokens.weight"


def join_vision(weights: Mapping[str, Tensor], checkpoint: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights of a model with the vision tower of a checkpoint, in the model's own precision."""
    tower = {_within_tower(name): weight for name, weight in checkpoint.items() if TOWER in name}
    replaced = {_within_tower(name) for name in weights if TOWER in name}
    if replaced != set(tower):
        raise MiniatureError(
            f"{len(replaced)} weights in the model's vision tower, {len(tower)} in the checkpoint's, or "
            "other names; take the checkpoint of a model of the same family"
        )
    before, after = (_embeddings(each) for each in (weights, checkpoint))
    if not torch.equal(before.to(torch.float16), after.to(torch.float16)):
        raise MiniatureError(
            "the checkpoint's vision tower was taught with other embeddings than the model's; "
            "teach it with the model's seed and vocabulary"
        )
    return {
        name: tower[_within_tower(name)].to(weight.dtype) if TOWER in name else weight
        for name, weight in weights.items()
    }


def join_vision_in_folder(folder: Path, reading: Path) -> None:
    """Write a model's weights again with the vision tower of the checkpoint `reading`."""
    path = folder / "model.safetensors"
    if not path.is_file():
        raise MiniatureError(f"{folder}: no model.safetensors; name a folder of a model")
    joined = join_vision(load_file(path), read_checkpoint(reading))
    with replace_file(path) as scratch:
        save_file(joined, scratch, metadata={"format": "pt"})


def _within_tower(name: str) -> str:
    return name.partition(TOWER)[2]


def _embeddings(weights: Mapping[str, Tensor]) -> Tensor:
    names = [name for name in weights if name.endswith(EMBEDDINGS)]
    if len(names) != 1:
        raise MiniatureError(f"{len(names)} tables of embeddings ({EMBEDDINGS}), wanted one")
    return weights[names[0]]


def join_from_command_line() -> None:
    """Read the command line and join."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, nargs="+", required=True, help="folders of models")
    parser.add_argument("--reading", type=Path, required=True, help="reading.pt of the new vision tower")
    arguments = parser.parse_args()
    for folder in arguments.model:
        join_vision_in_folder(folder, arguments.reading)


if __name__ == "__main__":
    join_from_command_line()
