"""Widths from two bits on are at most half a step wrong; one bit has two levels, each the mean of a half."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from ridgerank.store.codec import (
    CODE_MAX,
    quantize_groups,
    quantize_keys,
    quantize_values,
    restore_groups,
)
from ridgerank.store.storage_setting import WIDTHS


def restored(codes: Tensor, scales: Tensor) -> Tensor:
    return codes.float() * scales.float()


def outlying(seed: int, size: float) -> Tensor:
    """Some key channels and some positions a hundred times larger than the rest."""
    x = torch.randn(3, 2, 40, 16, generator=torch.Generator().manual_seed(seed)) * size
    x[..., 3] *= 100
    x[:, :, 7] *= 100
    return x


@given(seed=st.integers(0, 999), exponent=st.integers(-30, 30))
def test_int8_error_is_at_most_half_a_step(seed: int, exponent: int) -> None:
    x = outlying(seed, 10.0**exponent)
    for quantize in (quantize_keys, quantize_values):
        codes, scales = quantize(x)
        steps = scales.double().expand_as(x)
        error = (codes.double() * steps - x.double()).abs()
        assert (error <= steps * (0.5 + 1e-4)).all()
        assert codes.abs().max() <= CODE_MAX


def test_steps_are_a_127th_of_the_largest_value() -> None:
    x = outlying(0, 1.0)
    for quantizer, dim in ((quantize_keys, 2), (quantize_values, 3)):
        _, scales = quantizer(x)
        largest = x.abs().amax(dim=dim, keepdim=True)
        torch.testing.assert_close(scales.float() * CODE_MAX, largest, rtol=2**-8, atol=0.0)


def test_keys_share_a_scale_along_positions_and_values_along_channels() -> None:
    x = outlying(0, 1.0)
    assert quantize_keys(x)[1].shape == (3, 2, 1, 16)
    assert quantize_values(x)[1].shape == (3, 2, 40, 1)


def test_zeros_stay_zeros() -> None:
    for quantizer in (quantize_keys, quantize_values):
        codes, scales = quantizer(torch.zeros(1, 1, 4, 8))
        assert not restored(codes, scales).any()


def test_integers_up_to_127_survive_exactly() -> None:
    x = torch.arange(-127.0, 128.0).view(1, 1, 1, -1)
    assert torch.equal(restored(*quantize_values(x)), x)


def test_quantizing_twice_changes_nothing() -> None:
    once = restored(*quantize_values(outlying(1, 1.0)))
    assert torch.equal(restored(*quantize_values(once)), once)


def test_key_channels_of_differing_size_want_a_scale_each() -> None:
    keys = torch.randn(1, 1, 64, 16, generator=torch.Generator().manual_seed(0))
    keys *= torch.logspace(-2, 2, 16)
    error = {
        name: ((restored(*quantize(keys)) - keys) / keys.std(dim=2, keepdim=True)).square().mean()
        for name, quantize in (("channel", quantize_keys), ("position", quantize_values))
    }
    assert error["channel"] < 1e-3 * error["position"]


@given(
    seed=st.integers(0, 999),
    exponent=st.integers(-25, 25),
    bits=st.sampled_from(WIDTHS),
    dim=st.sampled_from([-2, -1]),
    group=st.sampled_from([None, 8, 9, 32, 64]),
    offset=st.sampled_from([0.0, 1.0, -300.0]),
)
def test_with_any_width_and_group_the_error_is_at_most_half_a_step(
    seed: int, exponent: int, bits: int, dim: int, group: int | None, offset: float
) -> None:
    x = outlying(seed, 10.0**exponent) + offset * 10.0**exponent
    quantized = quantize_groups(x, bits=bits, dim=dim, group=group)
    assert int(quantized.codes.max()) < 1 << bits
    restored_numbers = quantized.codes.float()
    restore_groups(restored_numbers, quantized.steps.float(), quantized.minima.float(), dim=dim, group=group)
    steps = (
        quantized.steps.double().repeat_interleave(group or x.shape[dim], dim).narrow(dim, 0, x.shape[dim])
    )
    error = (restored_numbers.double() - x.double()).abs()
    # Minimum + code × step is summed in float32, which rounds in proportion to the largest term.
    rounding = 1e-6 * x.abs().double().amax(dim, keepdim=True)
    assert (error <= steps / 2 + rounding).all()


@given(seed=st.integers(0, 999), exponent=st.integers(-25, 25), group=st.sampled_from([None, 8, 9]))
def test_one_bit_has_the_means_of_two_halves_as_levels_and_takes_the_nearer(
    seed: int, exponent: int, group: int | None
) -> None:
    x = outlying(seed, 10.0**exponent)
    quantized = quantize_groups(x, bits=1, dim=-1, group=group)
    size = group or x.shape[-1]
    for number, part in enumerate(torch.split(x, size, dim=-1)):
        above = part > part.mean(dim=-1, keepdim=True)
        low = quantized.minima[..., number : number + 1].double()
        high = low + quantized.steps[..., number : number + 1].double()
        for level, members in ((low, ~above), (high, above)):
            mean = torch.where(members, part.double(), 0).sum(-1, keepdim=True) / members.sum(
                -1, keepdim=True
            )
            largest = part.abs().amax(-1, keepdim=True).double()
            assert ((level - mean).abs() <= 2**-7 * largest).all()
        codes = quantized.codes[..., number * size : (number + 1) * size].bool()
        nearer = (part - high).abs() < (part - low).abs()
        clear = ((part - high).abs() - (part - low).abs()).abs() > 1e-5 * part.abs().amax(-1, keepdim=True)
        assert torch.equal(codes[clear], nearer[clear])


def test_one_bit_from_minimum_to_maximum_would_be_three_times_as_wrong() -> None:
    x = torch.randn(1, 1, 64, 128, generator=torch.Generator().manual_seed(0))
    quantized = quantize_groups(x, bits=1, dim=-1, group=None)
    levels = quantized.minima.float() + quantized.codes * quantized.steps.float()
    smallest, largest = x.amin(-1, keepdim=True), x.amax(-1, keepdim=True)
    extremes = torch.where(x > (smallest + largest) / 2, largest, smallest)
    assert (extremes - x).square().mean() > 3 * (levels - x).square().mean()


def test_groups_of_a_channel_run_along_positions_and_the_last_may_be_smaller() -> None:
    x = outlying(0, 1.0)
    assert quantize_groups(x, bits=4, dim=-2, group=32).steps.shape == (3, 2, 2, 16)
    assert quantize_groups(x, bits=4, dim=-1, group=8).minima.shape == (3, 2, 40, 2)
    assert quantize_groups(x, bits=4, dim=-1, group=None).steps.shape == (3, 2, 40, 1)


def test_a_range_from_minimum_to_maximum_beats_a_symmetric_one_where_numbers_have_an_offset() -> None:
    keys = torch.randn(1, 1, 64, 16, generator=torch.Generator().manual_seed(0)) + 5
    asymmetric = quantize_groups(keys, bits=4, dim=-2, group=None)
    largest = keys.abs().amax(dim=-2, keepdim=True)
    assert (asymmetric.steps.float() < largest / 7 / 1.5).all()


def test_numbers_that_are_all_equal_survive() -> None:
    for value in (0.0, 1.5, -3.0):
        for bits in (2, 1):
            quantized = quantize_groups(torch.full((1, 1, 4, 8), value), bits=bits, dim=-2, group=None)
            numbers = quantized.codes.float()
            restore_groups(numbers, quantized.steps.float(), quantized.minima.float(), dim=-2, group=None)
            assert (numbers == value).all()
