"""GQR against its published code, on vectors made by a formula: the same on every machine."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from experiments.baselines.gqr import (
    GRID,
    LEARNING_RATES,
    STEPS,
    PagePool,
    RefinementSettings,
    refine_together,
)

PAGES, PAGE_VECTORS, QUERIES, QUERY_VECTORS, DIM, TEXT_DIM = 12, 9, 3, 6, 16, 8


def page_vectors() -> NDArray[np.float16]:
    """(pages, vectors, dim), in the precision of a store."""
    return unit_vectors((PAGES, PAGE_VECTORS, DIM), seed=1.0).astype(np.float16)


def query_vectors() -> NDArray[np.float32]:
    """(queries, vectors, dim)."""
    return unit_vectors((QUERIES, QUERY_VECTORS, DIM), seed=2.0)


def text_vectors() -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Single vectors of the text retriever: pages (pages, dim) and queries (queries, dim)."""
    return unit_vectors((PAGES, TEXT_DIM), seed=3.0), unit_vectors((QUERIES, TEXT_DIM), seed=4.0)


def unit_vectors(shape: tuple[int, ...], *, seed: float) -> NDArray[np.float32]:
    """Fractions of large sines, from −1 to 1, scaled to length 1 along the last axis."""
    numbers = np.arange(1, np.prod(shape) + 1, dtype=np.float64)
    waves = np.sin(numbers * 12.9898 + seed * 78.233) * 43758.5453
    values = (2.0 * (waves - np.floor(waves)) - 1.0).reshape(shape)
    scaled: NDArray[np.float32] = (values / np.linalg.norm(values, axis=-1, keepdims=True)).astype(np.float32)
    return scaled


RECORDED = json.loads((Path(__file__).parents[2] / "fixtures/gqr_as_published.json").read_text())
"""What the published code gave for the same vectors."""


def test_the_first_step_of_two_pages_is_as_computed_by_hand() -> None:
    """One token (1, 0), pages (1, 0) and (0, 1), a guide that is certain of the second.

    Scores 1 and 0: p₁ = e/(e + 1) and p = (p₁ + (0, 1))/2. The gradient in z is p₁ − p times the pages:
    (+, −), and Adam's first step is the learning rate against its sign.
    """
    pages = [np.array([[1.0, 0.0]], dtype=np.float16), np.array([[0.0, 1.0]], dtype=np.float16)]
    query, pool = torch.tensor([[1.0, 0.0]]), PagePool(pages, torch.device("cpu"))
    guidance, settings = np.array([0.0, 100.0]), RefinementSettings()
    [refined] = refine_together(query, pool, guidance, settings, learning_rates=(0.1,), steps=(1,))
    assert refined[0].tolist() == pytest.approx([0.9, 0.1], abs=1e-5)


def recorded(setting: tuple[float, int], query: int) -> Any:  # noqa: ANN401 (a row of the file)
    rows = [
        row
        for row in RECORDED["refined"]
        if (row["learning_rate"], row["steps"], row["query"]) == (*setting, query)
    ]
    [row] = rows
    return row


def test_the_grid_is_that_of_the_published_code() -> None:
    assert {(row["learning_rate"], row["steps"]) for row in RECORDED["refined"]} == set(GRID)
    assert len(GRID) == 18


def test_the_score_is_that_of_the_published_code() -> None:
    pool = PagePool(list(page_vectors()), torch.device("cpu"))
    scores = pool.mean_maxsim(torch.tensor(query_vectors()))
    assert scores.shape == (QUERIES, PAGES)
    assert scores.numpy() == pytest.approx(np.array(RECORDED["initial"]), abs=1e-6)


@pytest.mark.parametrize("query", range(QUERIES))
def test_scores_refined_under_all_settings_together_are_those_of_the_published_code(query: int) -> None:
    vectors, (texts, questions) = torch.tensor(query_vectors()[query]), text_vectors()
    numbers = recorded(GRID[0], query)["pages"]
    pool = PagePool([page_vectors()[page] for page in numbers], vectors.device)
    guidance = (texts[numbers] @ questions[query]).astype(np.float64)
    settings = RefinementSettings()
    together = refine_together(vectors, pool, guidance, settings, learning_rates=LEARNING_RATES, steps=STEPS)
    for setting, refined in zip(GRID, together, strict=True):
        row = recorded(setting, query)
        assert pool.mean_maxsim(refined[None])[0].numpy() == pytest.approx(row["scores"], abs=1e-5)
    if query == 0:  # the last setting moves furthest
        assert together[-1].numpy() == pytest.approx(np.array(RECORDED["vectors"]), abs=1e-5)


def test_a_shorter_page_is_not_matched_by_its_padding() -> None:
    query = torch.tensor([[1.0, 0.0]])
    pages = [np.array([[-1.0, 0.0]], dtype=np.float16), np.array([[-0.5, 0], [-0.8, 0]], dtype=np.float16)]
    assert PagePool(pages, query.device).mean_maxsim(query[None])[0].tolist() == [-1.0, -0.5]
