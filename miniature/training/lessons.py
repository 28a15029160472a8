"""How a lesson is taught: steps, checkpoints, a log; interrupted anywhere, it goes on as if it had not been.

What a step shows is drawn from the seed and the step's number alone, so there is no stream to rewind.
"""

import json
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import Parameter
from transformers import PreTrainedModel

from miniature import MiniatureError
from ridgerank.atomic import replace_file

WARM_UP_STEPS = 100
FINAL_RATE = 0.05
"""Share of the learning rate that is left at the end."""


class TrainingLesson(ABC):
    """Something a model learns: which of its weights, from what, how fast."""

    name: ClassVar[str]
    rate: ClassVar[float]
    steps: int

    def __init__(self, model: PreTrainedModel, *, seed: int, steps: int) -> None:
        self.model, self.seed, self.steps = model, seed, steps

    @abstractmethod
    def trained_parameters(self) -> Iterable[Parameter]:
        """The weights that change."""

    @abstractmethod
    def step(self, number: int) -> tuple[Tensor, Mapping[str, float]]:
        """The loss of a step, and what else is worth logging."""

    def generator(self, number: int) -> torch.Generator:
        """The chance of one step."""
        return torch.Generator().manual_seed(self.seed * 1_000_003 + number)


def train_lesson(
    lesson: TrainingLesson,
    folder: Path,
    *,
    until: float,
    stop_at: int | None = None,
    log_every: int = 20,
    save_every_s: float = 90.0,
) -> int:
    """Teach until the lesson or the time (`until`, by `time.monotonic`) is over; the next step's number.

    `stop_at` ends the lesson early: its rates stay those of all its steps.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{lesson.name}.pt"
    trained_parameters = list(lesson.trained_parameters())
    lesson.model.requires_grad_(False)
    for parameter in trained_parameters:
        parameter.requires_grad_(True)
    optimizer = torch.optim.AdamW(trained_parameters, lr=lesson.rate, betas=(0.9, 0.98), weight_decay=0.0)
    number = _resume(lesson, optimizer, path)
    seen: dict[str, list[float]] = defaultdict(list)
    saved = start = time.monotonic()
    last = lesson.steps if stop_at is None else min(stop_at, lesson.steps)
    while number < last and time.monotonic() < until:
        for group in optimizer.param_groups:
            group["lr"] = lesson.rate * rate_at(number, lesson.steps)
        loss, measures = lesson.step(number)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(trained_parameters, 1.0)
        optimizer.step()
        number += 1
        for name, value in {"loss": loss.item(), **measures}.items():
            seen[name].append(value)
        if number % log_every == 0:
            means = {name: round(sum(values) / len(values), 4) for name, values in seen.items()}
            elapsed = round(time.monotonic() - start, 1)
            with (folder / "log.jsonl").open("a") as log:
                log.write(json.dumps({"lesson": lesson.name, "step": number, "s": elapsed, **means}) + "\n")
            seen.clear()
        if time.monotonic() - saved > save_every_s:
            _save(lesson, optimizer, number, path)
            saved = time.monotonic()
    _save(lesson, optimizer, number, path)
    return number


def rate_at(number: int, steps: int) -> float:
    """Share of the learning rate at a step: up within 100 steps, then down in a straight line."""
    return min(1.0, (number + 1) / WARM_UP_STEPS) * max(FINAL_RATE, 1 - number / steps)


def load_weights(model: PreTrainedModel, path: Path, prefixes: tuple[str, ...]) -> None:
    """Take the weights whose names start with one of `prefixes` from a checkpoint."""
    part = {name: weight for name, weight in read_checkpoint(path).items() if name.startswith(prefixes)}
    model.load_state_dict(part, strict=False)


def read_checkpoint(path: Path) -> dict[str, Tensor]:
    """The weights of a checkpoint, by name."""
    if not path.is_file():
        raise MiniatureError(f"{path}: no such checkpoint; teach that lesson first")
    weights: dict[str, Tensor] = torch.load(path, weights_only=True)["model"]
    return weights


def _resume(lesson: TrainingLesson, optimizer: torch.optim.Optimizer, path: Path) -> int:
    if not path.is_file():
        return 0
    state = torch.load(path, weights_only=True)
    if (state["seed"], state["steps"]) != (lesson.seed, lesson.steps):
        raise MiniatureError(
            f"{path}: a lesson of {state['steps']} steps with seed {state['seed']}, wanted {lesson.steps} "
            f"steps with seed {lesson.seed}; use another folder, or the same numbers"
        )
    lesson.model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    number: int = state["step"]
    return number


def _save(lesson: TrainingLesson, optimizer: torch.optim.Optimizer, number: int, path: Path) -> None:
    state = {
        "model": lesson.model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "step": number,
        "steps": lesson.steps,
        "seed": lesson.seed,
    }
    with replace_file(path) as scratch:
        torch.save(state, scratch)
