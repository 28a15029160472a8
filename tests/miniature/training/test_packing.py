"""The first weights, the prompt under the small tokenizer, and what a question may see."""

from itertools import islice
from pathlib import Path
from random import Random

import pytest
import torch

from miniature.training.designs import TrainableModel, make_mini_glm, make_mini_qwen, render
from miniature.training.matching_lesson import cell_words, pages_with_questions
from miniature.training.packing import CELLS, Packer
from miniature.training.reading_lesson import CellReader, cell_tokens
from miniature.training.train import save_model
from miniature.training.training_pages import training_pages, training_queries
from miniature.vocabulary import PAGE_WORDS, QUERY_WORDS
from ridgerank.backbones.base import full_margins
from ridgerank.backbones.load import load_backbone


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


def test_cells_that_are_not_kept_do_not_reach_the_answer(trainable: TrainableModel) -> None:
    pages, examples_by_page = pages_with_questions(0, 0, 2)
    packer = Packer(trainable)
    features = trainable.model.model.language_model.embed_tokens.weight[cell_tokens(trainable)][
        cell_words(pages)
    ]
    changed = features.clone()
    changed[:, ::2] += 1
    odd = torch.arange(1, CELLS, 2).expand(2, -1)
    everything = torch.ones(2, CELLS, dtype=torch.bool)
    with torch.inference_mode():
        said = [
            packer.answer(each, packer.pack(examples_by_page), odd, everything).logits
            for each in (features, changed)
        ]
    torch.testing.assert_close(said[0], said[1])
