"""A small world that two cores can learn: documents drawn here, questions about them, models that read them.

How a page is made, in order: `vocabulary` has the words, the rule that keeps evaluation apart from training,
and the themes of documents; `layouts` composes pages of blocks on a grid of cells (`world`); `questions` are
the questions and know their answers; `corpora` names the twelve corpora; `draw` writes PDF files.
`weights/` has models trained by `miniature.training.train` to read these pages and no others.
In the repository only: demo, tests, benchmarks and experiments use it, the installed package does not.
"""

from pathlib import Path

from ridgerank.errors import RidgeRankError

FOLDER = Path(__file__).parent / "weights"
BACKBONES = ("mini-qwen", "mini-glm")
RETRIEVERS = ("mini-colqwen", "mini-colqwen-small")
"""The second is the weaker of the two."""


class MiniatureError(RidgeRankError):
    """A corpus or model of the miniature that is unknown, or a corpus that cannot be drawn as described."""


def weights(name: str) -> Path:
    """The folder of a model of the miniature, to be passed wherever a model is named."""
    if name not in (*BACKBONES, *RETRIEVERS):
        raise MiniatureError(f"no model {name!r}; there are: {', '.join((*BACKBONES, *RETRIEVERS))}")
    return FOLDER / name


def model_path(name: str) -> str:
    """The folder of a model of the miniature; any other name is returned unchanged."""
    return str(weights(name)) if name in (*BACKBONES, *RETRIEVERS) else name
