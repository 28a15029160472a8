"""Every lesson runs, goes on where it was interrupted, and leaves a model that answers."""

import json
import time
from collections.abc import Callable
from functools import partial
from itertools import islice
from pathlib import Path

import pytest
import torch

from miniature.training import train as training
from miniature.training.designs import TrainableModel, make_mini_glm, make_mini_qwen, render
from miniature.training.lessons import TrainingLesson, train_lesson
from miniature.training.matching_lesson import MatchingLesson
from miniature.training.reading_lesson import ReadingLesson
from miniature.training.training_pages import training_pages
from miniature.training.wording_lesson import KeepingLesson, WordingLesson
from ridgerank.backbones.base import full_margins
from ridgerank.backbones.load import load_backbone

LESSONS = (ReadingLesson, MatchingLesson, KeepingLesson, WordingLesson)
STEPS = 4


def _lesson(kind: type[ReadingLesson | MatchingLesson], *, steps: int = STEPS) -> TrainingLesson:
    return kind(make_mini_qwen(1, layers=2), seed=1, steps=steps, pages=1)


def _forever() -> float:
    return time.monotonic() + 600


@pytest.mark.parametrize("kind", LESSONS)
def test_an_interrupted_lesson_ends_with_the_same_weights(
    kind: type[ReadingLesson | MatchingLesson], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = _lesson(kind)
    train_lesson(whole, tmp_path / "whole", until=_forever(), log_every=1)

    first = _lesson(kind)
    trained_parameters = first.step
    clock = [0.0]

    def step(number: int) -> tuple[torch.Tensor, dict[str, float]]:
        clock[0] = 100.0 if number == 1 else 0.0  # time is over after two steps
        loss, measures = trained_parameters(number)
        return loss, dict(measures)

    monkeypatch.setattr(first, "step", step)
    with monkeypatch.context() as patched:
        patched.setattr(time, "monotonic", lambda: clock[0])
        assert train_lesson(first, tmp_path / "parts", until=50.0) == 2
    second = _lesson(kind)
    assert train_lesson(second, tmp_path / "parts", until=_forever()) == STEPS
    for name, weight in whole.model.state_dict().items():
        torch.testing.assert_close(second.model.state_dict()[name], weight, rtol=0, atol=0, msg=name)
    log = [json.loads(line) for line in (tmp_path / "whole" / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in log] == [1, 2, 3, 4]


@pytest.mark.parametrize(("name", "make"), [("mini-qwen", make_mini_qwen), ("mini-glm", make_mini_glm)])
def test_training_leaves_a_model_that_loads_and_answers(
    name: str, make: Callable[..., TrainableModel], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "DESIGNS", {name: partial(make, layers=2)})
    training.train(name, tmp_path, stages=dict.fromkeys(training.STEPS, 1), minutes=5, seed=0)
    backbone = load_backbone(tmp_path / "model", device="cpu")
    images = render(list(islice(training_pages(1), 2)))
    margins = full_margins(backbone, "margin of Norvale in 2019", images)
    assert margins.shape == (2,)
    assert margins.isfinite().all()
    assert backbone.encode(images[:1], exit_layer=2)[0].grid == (16, 12)
