"""The first weights, the prompt under the small tokenizer, and what a question may see."""

from itertools import islice
from pathlib import Path
from random import Random

import pytest
import torch

from miniature.training.initial_weights import distance_biases
from miniature.training.keeping_lesson import even_cells, seen_cells
from miniature.training.matching_lesson import cell_words, choose_cells, pages_with_questions
from miniature.training.mini_glm import make_mini_glm
from miniature.training.mini_qwen import make_mini_qwen
from miniature.training.packing import CELLS, Packer
from miniature.training.reading_lesson import CellReader, cell_tokens, practice_page
from miniature.training.render import render
from miniature.training.train import save_model
from miniature.training.trainable_model import TrainableModel
from miniature.training.training_pages import training_pages, training_queries
from miniature.vocabulary import ENTITIES, MEASURES, PAGE_WORDS, QUERY_WORDS
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


def test_unknown_words_are_spelled(trainable: TrainableModel) -> None:
    assert trainable.tokenizer.decode(trainable.tokenizer.encode("Überschuß")) == "Überschuß"


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


def test_what_is_hidden_from_questions_changes_their_answers(trainable: TrainableModel) -> None:
    pages, examples_by_page = pages_with_questions(0, 0, 1)
    packer = Packer(trainable)
    packed = packer.pack(examples_by_page)
    kept = torch.arange(CELLS)[None]
    features = trainable.model.model.language_model.embed_tokens.weight[cell_tokens(trainable)][
        cell_words(pages)
    ]
    seen = torch.ones(1, CELLS, dtype=torch.bool)
    with torch.inference_mode():
        whole = packer.answer(features, packed, kept, seen).logits
        blind = packer.answer(features, packed, kept, ~seen).logits
    assert (whole - blind).abs().max() > 1e-4


def test_cells_with_words_are_kept_first() -> None:
    pages, _ = pages_with_questions(0, 0, 3)
    cells = cell_words(pages)
    kept = choose_cells(cells, torch.Generator().manual_seed(0))
    for row, chosen in zip(cells, kept, strict=True):
        assert set(row.nonzero().flatten().tolist()) <= set(chosen.tolist())
        assert chosen.tolist() == sorted(chosen.tolist())


def test_seen_cells_keep_their_share() -> None:
    generator = torch.Generator().manual_seed(0)
    share = seen_cells(400, CELLS, (1 / 3, 1.0), generator).float().mean(dim=1)
    assert share.min() > 0.2
    assert abs(share.mean() - 2 / 3) < 0.03
    assert seen_cells(2, CELLS, (1.0, 1.0), generator).all()


def test_even_cells_are_one_in_three() -> None:
    chosen = even_cells(5, CELLS, 3, torch.Generator().manual_seed(0))
    assert (chosen.sum(dim=1) == CELLS // 3).all()
    assert all(set(row.nonzero().flatten().diff().tolist()) == {3} for row in chosen)


def test_practice_pages_hold_their_words_within_the_page() -> None:
    generator = Random(0)
    for _ in range(20):
        page = practice_page(generator)
        assert all(placed.column + placed.width_cells <= 12 for placed in page.words)
        assert len(page.words) > 50


def test_a_head_looks_where_its_biases_say() -> None:
    """Brute force over distances: the score is largest at the wanted one."""
    frequencies = [0.2, 0.4, 0.9]
    half = len(frequencies)
    for expected in (-3, 0, 2, 5):
        query, key = distance_biases([(f, expected) for f in frequencies], strength=4.0)
        scores = {}
        for distance in range(-6, 7):
            angle = torch.tensor(frequencies) * distance  # the query stands so much further on
            cos, sin = angle.cos(), angle.sin()
            upper, lower = query[:half] * cos - query[half:] * sin, query[half:] * cos + query[:half] * sin
            scores[distance] = float(torch.cat([upper, lower]) @ key) / (2 * half) ** 0.5
        assert max(scores, key=lambda distance: scores[distance]) == expected
        assert scores[expected] == pytest.approx(4.0 * half, rel=1e-5)


def test_words_of_a_kind_start_far_apart(trainable: TrainableModel) -> None:
    words = trainable.model.model.language_model.embed_tokens.weight[cell_tokens(trainable)]
    nearness = torch.nn.functional.cosine_similarity(words[:, None], words, dim=-1).fill_diagonal_(0)
    named = nearness[1 : 1 + len(ENTITIES), 1 : 1 + len(ENTITIES)]
    assert named.max() < 0.75
    # Blank cells and other kinds have nothing in common with an entity.
    assert nearness[0].abs().max() < 1e-6
    assert nearness[1, 1 + len(ENTITIES) : 1 + len(ENTITIES) + len(MEASURES)].abs().max() < 1e-6
