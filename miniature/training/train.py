"""Train the miniature's models: `python -m miniature.training.train --model mini-qwen --out DIR`.

    DIR/reading.pt    the vision tower reads            DIR/log.jsonl   a line every 20 steps
    DIR/matching.pt   the decoder matches words         DIR/model/      for `load_backbone`
    DIR/keeping.pt    and does with a part of a page
    DIR/wording.pt    and speaks in its last layers only

A retriever has one lesson, `retrieval`, and the vision tower of a `mini-qwen` that can read:
`python -m miniature.training.train --model mini-colqwen --out DIR --eyes MINI-QWEN/reading.pt`.

The first two lessons do not depend on each other and may run side by side. Started again, a lesson goes on
from its last checkpoint and ends with the weights it would have had anyway.
"""

import argparse
import logging
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import torch
from transformers import PreTrainedModel

from miniature.training.designs import TrainableModel, make_mini_glm, make_mini_qwen
from miniature.training.lessons import TrainingLesson, load_weights, train_lesson
from miniature.training.matching_lesson import KeepingLesson, MatchingLesson, WordingLesson
from miniature.training.reading_lesson import ReadingLesson
from miniature.training.retrieval_lesson import RetrievalLesson, TrainableRetriever, make_mini_colqwen

logger = logging.getLogger(__name__)

DESIGNS: Mapping[str, Callable[[int], TrainableModel]] = {
    "mini-qwen": make_mini_qwen,
    "mini-glm": make_mini_glm,
}
"""Model → how it is made from a seed."""
RETRIEVERS: Mapping[str, Callable[[int, Path], TrainableRetriever]] = {
    "mini-colqwen": partial(make_mini_colqwen, layers=2, dim=32),
    "mini-colqwen-small": partial(make_mini_colqwen, layers=1, dim=16),
}
"""Retriever → how it is made from a seed and the checkpoint of its vision tower."""
RETRIEVER_STEPS = {"mini-colqwen": 300, "mini-colqwen-small": 200}
STEPS = {"reading": 1000, "matching": 1500, "keeping": 1200, "wording": 400}
"""Stage → its steps, in order."""
VISION, DECODER = ("model.visual.",), ("model.language_model.", "lm_head.")


def train(
    name: str,
    out: Path,
    *,
    stages: Mapping[str, int],
    minutes: float,
    seed: int,
    stop_at: int | None = None,
) -> None:
    """Teach stages (name → steps) one after the other, within the time; after the last, save the model.

    `stop_at` ends a stage at that step, whose rate is still that of the whole stage.
    """
    until = time.monotonic() + 60 * minutes
    for stage, steps in stages.items():
        trainable = DESIGNS[name](seed)
        lesson = _lesson(stage, trainable, out, seed=seed, steps=steps)
        reached = train_lesson(lesson, out, until=until, stop_at=stop_at)
        logger.info("%s: %d of %d steps", stage, reached, lesson.steps)
        if stage == "wording":
            load_weights(trainable.model, out / "reading.pt", VISION)
            save_model(trainable, out / "model")
        if reached < lesson.steps:
            return


def train_retriever(
    name: str, out: Path, vision_checkpoint: Path, *, steps: int, minutes: float, seed: int
) -> None:
    """Teach a retriever within the time, and save it."""
    trainable = RETRIEVERS[name](seed, vision_checkpoint)
    lesson = RetrievalLesson(trainable, seed=seed, steps=steps)
    reached = train_lesson(lesson, out, until=time.monotonic() + 60 * minutes)
    logger.info("retrieval: %d of %d steps", reached, steps)
    _save_weights(trainable.model, out / "model")
    trainable.processor.save_pretrained(out / "model")


def save_model(trainable: TrainableModel, folder: Path) -> None:
    """Write the model as the hub keeps models, in half precision."""
    _save_weights(trainable.model, folder)
    trainable.tokenizer.save_pretrained(folder)
    trainable.image_processor.save_pretrained(folder)


def _save_weights(model: PreTrainedModel, folder: Path) -> None:
    state = {name: weight.to(torch.float16) for name, weight in model.state_dict().items()}
    model.save_pretrained(folder, state_dict=state)


def _lesson(stage: str, trainable: TrainableModel, out: Path, *, seed: int, steps: int) -> TrainingLesson:
    match stage:
        case "reading":
            return ReadingLesson(trainable, seed=seed, steps=steps)
        case "matching":
            return MatchingLesson(trainable, seed=seed, steps=steps)
        case "keeping":
            load_weights(trainable.model, out / "matching.pt", DECODER)
            return KeepingLesson(trainable, seed=seed, steps=steps)
        case _:
            load_weights(trainable.model, out / "keeping.pt", DECODER)
            return WordingLesson(trainable, seed=seed, steps=steps)


def train_from_command_line() -> None:
    """Read the command line and train."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", choices=[*DESIGNS, *RETRIEVERS], required=True)
    parser.add_argument("--out", type=Path, required=True, help="folder of checkpoints, log and model")
    parser.add_argument("--stage", choices=list(STEPS), action="append", help="one or more; all by default")
    parser.add_argument(
        "--minutes", type=float, default=600, help="stop after this time; start again to go on"
    )
    parser.add_argument("--steps", type=int, help=f"of each stage; {STEPS} by default")
    parser.add_argument("--stop-at", type=int, help="end a stage at this step, as the shipped weights did")
    parser.add_argument("--eyes", type=Path, help="for a retriever: the checkpoint of a reading mini-qwen")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    if arguments.model in RETRIEVERS:
        if arguments.eyes is None:
            parser.error(f"{arguments.model} learns to see from mini-qwen; name its reading.pt (--eyes)")
        train_retriever(
            arguments.model,
            arguments.out,
            arguments.eyes,
            steps=arguments.steps or RETRIEVER_STEPS[arguments.model],
            minutes=arguments.minutes,
            seed=arguments.seed,
        )
        return
    train(
        arguments.model,
        arguments.out,
        stages={stage: arguments.steps or STEPS[stage] for stage in arguments.stage or STEPS},
        minutes=arguments.minutes,
        seed=arguments.seed,
        stop_at=arguments.stop_at,
    )


if __name__ == "__main__":
    train_from_command_line()
