"""A model that can teach itself is told from one that cannot."""

from pathlib import Path

import numpy as np
import pytest
import torch

from ridgerank.backbones.load import load_backbone
from ridgerank.calibration.model_check import (
    CheckPages,
    check_model,
    count_right,
    peak_memory,
    state_distance,
    write_check_pages,
)
from ridgerank.errors import BackboneError
from ridgerank.miniature.check_pages import draw_check_pages
from tests.backbones.small_models import build
from tests.backbones.small_text_models import build_text


@pytest.mark.parametrize("name", ["mini-qwen", "mini-glm"])
def test_a_trained_miniature_can_teach_itself(name: str) -> None:
    backbone = load_backbone(name, device="cpu")
    checked = check_model(backbone, draw_check_pages(backbone.page_budget), "paper")
    assert checked.verdict == "margin"
    assert checked.margins_right == 4
    assert checked.sees_pages
    assert (checked.peak_memory_bytes or 0) > checked.weights_bytes
    # 6 layers x 2 x 2 heads x 32 channels, a third of the positions: int8, and the prompt's around them
    geometry = backbone.geometry
    per_position = 6 * 2 * geometry.kv_heads * geometry.head_dim
    assert checked.bytes_per_page > per_position * checked.page_positions / 3
    assert checked.bytes_per_page < per_position * (checked.page_positions / 3 + 60)


@pytest.mark.parametrize("family", ["qwen2_5_vl", "llama"])
def test_a_random_model_cannot(family: str, tmp_path: Path) -> None:
    make = build_text if family == "llama" else build
    backbone = load_backbone(make(family, tmp_path).folder, device="cpu")
    checked = check_model(backbone, write_check_pages())
    assert checked.verdict == "none"
    assert max(checked.margins_right, checked.likelihoods_right or 0) < 4
    assert {len(row.margins) for row in checked.queries} == {2}
    assert sum(row.answering_page for row in checked.queries) == 2


def test_weights_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    backbone = load_backbone(build_text("llama", tmp_path).folder, device="cpu")
    with torch.no_grad():
        backbone._text_model().norm.weight.fill_(torch.nan)
    with pytest.raises(BackboneError, match=r"no number in torch\.float32; its weights are damaged"):
        check_model(backbone, write_check_pages())


def test_equal_scores_are_not_right() -> None:
    drawn = CheckPages((), (("a", 0), ("b", 1), ("c", 1)))
    assert count_right(np.array([[2.0, 1.0], [1.0, 1.0], [3.0, 4.0]]), drawn) == 2


def test_the_distance_of_states_is_a_share_of_their_length() -> None:
    assert state_distance(np.array([[3.0, 4.0], [3.0, 4.0]])) == 0
    assert state_distance(np.array([[3.0, 0.0], [0.0, 3.0]])) == pytest.approx(2**0.5)


def test_peak_memory_does_not_fall() -> None:
    before = peak_memory()
    block = np.ones(1 << 22)
    after = peak_memory()
    del block
    assert before is not None
    assert after is not None
    assert (peak_memory() or 0) >= after >= before
