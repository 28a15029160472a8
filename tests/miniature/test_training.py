"""Every lesson runs, goes on where it was interrupted, and leaves a model that answers."""

import json
import time
from collections.abc import Callable
from functools import partial
from itertools import islice
from pathlib import Path
from random import Random

import pytest
import torch

from miniature.training import train as training
from miniature.training.designs import TrainableModel, make_mini_glm, make_mini_qwen, render
from miniature.training.lessons import TrainingLesson, train_lesson
from miniature.training.matching_lesson import KeepingLesson, MatchingLesson, WordingLesson
from miniature.training.packing import CELLS, Packer
from miniature.training.reading_lesson import CellReader, ReadingLesson
from miniature.training.train import save_model
from miniature.training.training_pages import training_pages, training_queries
from miniature.vocabulary import PAGE_WORDS, QUERY_WORDS
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


@pytest.fixture(scope="module", params=[make_mini_qwen, make_mini_glm], ids=["mini-qwen", "mini-glm"])
def trainable(request: pytest.FixtureRequest) -> TrainableModel:
    trainable: TrainableModel = request.param(3, layers=3)
    trainable.model.eval()
    return trainable


def test_every_word_is_one_token_wherever_it_stands(trainable: TrainableModel) -> None:
    for word in (*PAGE_WORDS, *QUERY_WORDS):
        first, second = trainable.tokenizer.encode(f"{word} {word}")
        assert first == second
        assert trainable.tokenizer.decode([first]) == word


def test_packed_questions_get_the_margins_of_the_backbone(trainable: TrainableModel, tmp_path: Path) -> None:
    pages = list(islice(training_pages(5), 2))
    examples_by_page = [training_queries(page, Random(1)) for page in pages]
    packer, reader = Packer(trainable), CellReader(trainable)
    everything = torch.arange(CELLS).expand(2, -1)
    with torch.inference_mode():
        features = reader.features(pages)
        logits = packer.answer(
            features, packer.pack(examples_by_page), everything, torch.ones(2, CELLS, dtype=torch.bool)
        ).logits
    margins = logits[:, packer.answers[0]] - logits[:, packer.answers[1]]

    trainable.model.save_pretrained(tmp_path)
    save_model(trainable, tmp_path / "half")
    for name in ("config.json", "generation_config.json", "model.safetensors"):
        (tmp_path / name).replace(tmp_path / "half" / name)
    backbone = load_backbone(tmp_path / "half", device="cpu")
    expected = [
        full_margins(backbone, each.question.text, [image])
        for image, examples in zip(render(pages), examples_by_page, strict=True)
        for each in examples
    ]
    torch.testing.assert_close(margins, torch.cat(expected), atol=2e-5, rtol=1e-4)
