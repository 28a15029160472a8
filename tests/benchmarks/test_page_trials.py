"""Trials of compressions start from what is built, and change nothing where they have nothing to do."""

from fractions import Fraction

import pytest
import torch
from PIL import Image, ImageDraw

from benchmarks.page_trials import (
    TRIALS,
    PageTrial,
    drop_instruction,
    keep_highest,
    keep_of_each,
    merge,
    refit_values,
    round_as_built,
    round_clipped,
)
from ridgerank.backbones.base import Backbone
from ridgerank.store.compress import compress, encode_shared
from ridgerank.store.number_format import NumberFormat
from ridgerank.store.pruning import Keep
from ridgerank.store.stored_prefixes import StoredPrefixes

EXIT = 3
BITS = "3/2"


@pytest.fixture(scope="module")
def page() -> Image.Image:
    image = Image.new("RGB", (140, 140), "white")
    ImageDraw.Draw(image).text((10, 40), "Revenue 2023", fill="black")
    return image


@pytest.fixture(scope="module")
def trial(small_backbone: Backbone, page: Image.Image) -> PageTrial:
    [prefix] = small_backbone.encode([page], exit_layer=EXIT)
    return PageTrial(small_backbone, prefix, ["revenue", "a longer reference query"])


def test_the_plain_trial_is_what_a_store_gives_back(
    small_backbone: Backbone, page: Image.Image, trial: PageTrial
) -> None:
    numbers = NumberFormat.parse(BITS)
    shared = encode_shared(small_backbone, numbers, exit_layer=EXIT, join_layer=0)
    packed = compress(trial.prefix, page, Keep.parse("value-norm 1/5"), numbers, shared)
    batch = StoredPrefixes.of([packed], join_layer=0)
    tried = keep_highest(trial, Fraction(1, 5), BITS)
    assert int(batch.lengths[0]) == tried.keys.shape[2]
    keys, values = torch.empty(1, *tried.keys.shape[1:]), torch.empty(1, *tried.values.shape[1:])
    for layer in range(EXIT):
        batch.fill(layer, keys, values)
        torch.testing.assert_close(keys[0], tried.keys[layer], atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(values[0], tried.values[layer], atol=1e-4, rtol=1e-4)


def test_refitting_changes_values_only_and_a_large_penalty_changes_nothing(trial: PageTrial) -> None:
    plain = keep_highest(trial, Fraction(1, 5), BITS)
    refitted = refit_values(trial, Fraction(1, 5), BITS, penalty=0.01)
    assert torch.equal(refitted.keys, plain.keys)
    assert not torch.equal(refitted.values, plain.values)
    held = refit_values(trial, Fraction(1, 5), BITS, penalty=1e12)
    torch.testing.assert_close(held.values, plain.values, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("by", ["key", "place"])
def test_merging_gives_each_position_the_mean_of_its_group(trial: PageTrial, by: str) -> None:
    alone = merge(trial, Fraction(1), "8", by=by)
    torch.testing.assert_close(alone.values, trial.prefix.values, atol=0.05, rtol=0.05)
    merged = merge(trial, Fraction(1, 5), "8", by=by)
    assert merged.keys.shape == trial.prefix.keys.shape
    groups = torch.unique(merged.values[0, 0, trial.visual], dim=0)
    assert len(groups) <= round(len(trial.visual) / 5)
    whole, mean = trial.prefix.values[0, 0, trial.visual], merged.values[0, 0, trial.visual]
    torch.testing.assert_close(mean.mean(dim=0), whole.mean(dim=0), atol=0.02, rtol=0.1)


def test_distinct_values_start_with_the_longest_and_leave_copies_for_last(trial: PageTrial) -> None:
    scores = trial.distinct_values
    assert sorted(scores.tolist()) == list(range(1, len(scores) + 1))
    lengths = trial.prefix.values[:, :, trial.visual].square().sum(dim=(0, 1, 3))
    assert scores.argmax() == lengths.argmax()


def test_every_layer_may_keep_positions_of_its_own(trial: PageTrial) -> None:
    plain = keep_highest(trial, Fraction(1, 5), BITS)
    for head in (False, True):
        own = keep_of_each(trial, Fraction(1, 5), "8", head=head)
        assert own.keys.shape == plain.keys.shape
        norms = trial.prefix.values[:, :, trial.visual].norm(dim=-1)
        kept = own.values[:, :, own.visual].norm(dim=-1)
        of_layer = (norms, kept) if head else (norms.mean(dim=1), kept.mean(dim=1))
        assert torch.allclose(of_layer[1].amax(-1), of_layer[0].amax(-1), rtol=0.02)


def test_without_its_instruction_a_page_ends_with_its_last_kept_cell(trial: PageTrial) -> None:
    plain, without = (make(trial, Fraction(1, 5), BITS) for make in (keep_highest, drop_instruction))
    assert without.visual[-1]
    assert without.visual.sum() == plain.visual.sum()


def test_a_clipped_range_has_less_squared_error_than_that_of_all_numbers() -> None:
    x = torch.randn(2, 2, 40, 16, generator=torch.Generator().manual_seed(0))
    for bits in (2, 3):
        clipped, plain = (
            (quantizer(x, bits, -2) - x).square().mean() for quantizer in (round_clipped, round_as_built)
        )
        assert clipped < plain


def test_every_trial_gives_a_page_that_queries_can_run_over(trial: PageTrial) -> None:
    for make in TRIALS.values():
        tried = make(trial)
        assert torch.isfinite(tried.keys).all()
        assert torch.isfinite(tried.values).all()
        assert tried.keys.shape[2] == len(tried.visual)
