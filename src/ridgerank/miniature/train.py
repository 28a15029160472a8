"""Train the miniature's models: `python -m ridgerank.miniature.train --model mini-qwen --out DIR`.

    DIR/reading.pt    the vision tower reads            DIR/log.jsonl   a line every 20 steps
    DIR/matching.pt   the decoder matches words         DIR/model/      for `load_backbone`
    DIR/joined.pt     both together, on images

The first two lessons do not depend on each other and may run side by side. Started again, a lesson goes on
from its last checkpoint and ends with the weights it would have had anyway.
"""

import argparse
import logging
import time
from collections.abc import Mapping
from pathlib import Path

import torch
from transformers import PreTrainedTokenizerFast, Qwen2_5_VLForConditionalGeneration

from ridgerank.miniature.architecture import make_image_processor, make_mini_qwen, make_tokenizer
from ridgerank.miniature.joining import JoinedLesson
from ridgerank.miniature.lessons import Lesson, learn, load_part
from ridgerank.miniature.matching import MatchingLesson
from ridgerank.miniature.reading import ReadingLesson

logger = logging.getLogger(__name__)

STEPS = {"reading": 2400, "matching": 3000, "joined": 1500}
"""Stage → its steps, in order."""
VISION, DECODER = ("model.visual.",), ("model.language_model.", "lm_head.")


def train(out: Path, *, stages: Mapping[str, int], minutes: float, seed: int) -> None:
    """Teach stages (name → steps) one after the other, within the time; save the model once it is joined."""
    until = time.monotonic() + 60 * minutes
    tokenizer = make_tokenizer()
    for stage, steps in stages.items():
        model = make_mini_qwen(tokenizer, seed)
        lesson = _lesson(stage, model, tokenizer, out, seed=seed, steps=steps)
        reached = learn(lesson, out, until=until)
        logger.info("%s: %d of %d steps", stage, reached, lesson.steps)
        if stage == "joined":
            save(model, tokenizer, out / "model")
        if reached < lesson.steps:
            return


def save(model: Qwen2_5_VLForConditionalGeneration, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Write the model as the hub keeps models, in half precision."""
    state = {name: weight.to(torch.float16) for name, weight in model.state_dict().items()}
    model.save_pretrained(folder, state_dict=state)
    tokenizer.save_pretrained(folder)
    make_image_processor().save_pretrained(folder)


def _lesson(
    stage: str,
    model: Qwen2_5_VLForConditionalGeneration,
    tokenizer: PreTrainedTokenizerFast,
    out: Path,
    *,
    seed: int,
    steps: int,
) -> Lesson:
    match stage:
        case "reading":
            return ReadingLesson(model, tokenizer, seed=seed, steps=steps)
        case "matching":
            return MatchingLesson(model, tokenizer, seed=seed, steps=steps)
        case _:
            load_part(model, out / "reading.pt", VISION)
            load_part(model, out / "matching.pt", DECODER)
            return JoinedLesson(model, tokenizer, seed=seed, steps=steps)


def main() -> None:
    """Read the command line and train."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", choices=["mini-qwen"], required=True)
    parser.add_argument("--out", type=Path, required=True, help="folder of checkpoints, log and model")
    parser.add_argument("--stage", choices=list(STEPS), action="append", help="one or more; all by default")
    parser.add_argument(
        "--minutes", type=float, default=600, help="stop after this time; start again to go on"
    )
    parser.add_argument("--steps", type=int, help=f"of each stage; {STEPS} by default")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    train(
        arguments.out,
        stages={stage: arguments.steps or STEPS[stage] for stage in arguments.stage or STEPS},
        minutes=arguments.minutes,
        seed=arguments.seed,
    )


if __name__ == "__main__":
    main()
