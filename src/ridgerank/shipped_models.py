"""The models that are shipped with the package, by name. Knows folders only, no model class.

They were trained by `experiments.miniature_training.train` and read the pages that
`ridgerank miniature draw` makes.
"""

from pathlib import Path

FOLDER = Path(__file__).parent / "miniature" / "weights"
BACKBONES = ("mini-qwen", "mini-glm")
RETRIEVERS = ("mini-colqwen", "mini-colqwen-small")
"""The second is the weaker of the two."""


def shipped_folder(name: str) -> Path | None:
    """The folder of a shipped model; None where there is no shipped model of this name."""
    return FOLDER / name if name in (*BACKBONES, *RETRIEVERS) else None
