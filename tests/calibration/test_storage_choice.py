"""The choice of a storage setting: what the goal asks for, and the current setting in case of doubt."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgerank.calibration.storage_choice import (
    TOLERANCE,
    MeasuredSetting,
    StorageGoal,
    bootstrap_interval,
    choose_storage,
    find_frontier,
    measure_setting,
)
from ridgerank.errors import CalibrationError
from ridgerank.store.number_format import NumberFormat
from ridgerank.store.pruning import Keep
from ridgerank.store.storage_setting import StorageSetting

CURRENT = StorageSetting(Keep(), NumberFormat(), 6)


def make_row(
    kilobytes: float, agreement: float, difference: tuple[float, float], *, exit_layer: int = 6
) -> MeasuredSetting:
    """A setting with this interval of its difference to a current setting of r = 0.6."""
    setting = replace(CURRENT, exit_layer=exit_layer)
    interval = (agreement - 0.1, agreement + 0.1)
    return MeasuredSetting(setting, 1e3 * kilobytes, agreement, interval, agreement - 0.6, difference, 1.0)


NOW = make_row(100, 0.6, (0, 0))
BETTER_AND_SMALLER = make_row(50, 0.7, (0.05, 0.15), exit_layer=5)
EQUAL = make_row(40, 0.599, (-0.004, 0.002), exit_layer=4)
PERHAPS_BETTER = make_row(30, 0.62, (-0.05, 0.09), exit_layer=3)
SURELY_A_LITTLE_WORSE = make_row(20, 0.59, (-0.015, -0.005), exit_layer=2)
POOR = make_row(10, 0.3, (-0.4, -0.2), exit_layer=1)
ALL = [NOW, BETTER_AND_SMALLER, EQUAL, PERHAPS_BETTER, SURELY_A_LITTLE_WORSE, POOR]


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=12))
def test_nothing_is_as_small_and_better_than_a_setting_of_the_frontier(sizes: list[tuple[int, int]]) -> None:
    rows = [make_row(size, r / 10, (0, 0), exit_layer=number) for number, (size, r) in enumerate(sizes)]
    frontier = find_frontier(rows)
    for row in rows:
        dominated = any(
            other.bytes_per_page <= row.bytes_per_page
            and other.agreement >= row.agreement
            and (other.bytes_per_page, other.agreement) != (row.bytes_per_page, row.agreement)
            for other in rows
        )
        same = [
            (other.bytes_per_page, other.agreement) == (row.bytes_per_page, row.agreement)
            for other in frontier
        ]
        assert sum(same) == (0 if dominated else 1)


def test_without_a_goal_the_smallest_setting_that_is_not_lower_is_chosen() -> None:
    assert choose_storage(ALL, StorageGoal()).recommended is EQUAL


@pytest.mark.parametrize("other", [PERHAPS_BETTER, SURELY_A_LITTLE_WORSE, POOR])
def test_in_doubt_the_current_setting_stays(other: MeasuredSetting) -> None:
    choice = choose_storage([NOW, other], StorageGoal())
    assert choice.recommended is NOW
    assert "no smaller setting was shown to lose less than 0.02" in choice.reason


def test_a_budget_takes_the_best_agreement_within_it() -> None:
    assert choose_storage(ALL, StorageGoal(budget_bytes=60_000)).recommended is BETTER_AND_SMALLER
    assert choose_storage(ALL, StorageGoal(budget_bytes=15_000)).recommended is POOR


def test_a_budget_the_current_setting_meets_is_no_reason_to_leave_it_for_luck() -> None:
    goal = StorageGoal(budget_bytes=200_000)
    assert choose_storage([NOW, PERHAPS_BETTER], goal).recommended is NOW
    assert choose_storage(ALL, goal).recommended is BETTER_AND_SMALLER


def test_a_budget_nothing_meets_is_an_error_that_names_the_smallest() -> None:
    with pytest.raises(
        CalibrationError, match=r"no setting of 6 fits into 0\.005 MB .* exit 1, takes 0\.010"
    ):
        choose_storage(ALL, StorageGoal(budget_bytes=5_000))


def test_an_agreement_is_a_share_of_the_best_setting_s() -> None:
    assert choose_storage(ALL, StorageGoal(agreement_share=1.0)).recommended is BETTER_AND_SMALLER
    assert choose_storage(ALL, StorageGoal(agreement_share=0.85)).recommended is PERHAPS_BETTER
    assert choose_storage(ALL, StorageGoal(agreement_share=0.4)).recommended is POOR


def test_an_agreement_that_only_larger_settings_reach_by_luck_leaves_the_current_one() -> None:
    lucky = make_row(150, 0.65, (-0.02, 0.12), exit_layer=7)
    assert choose_storage([NOW, lucky], StorageGoal(agreement_share=1.0)).recommended is NOW
    shown = make_row(150, 0.65, (0.02, 0.08), exit_layer=7)
    assert choose_storage([NOW, shown], StorageGoal(agreement_share=1.0)).recommended is shown


def test_where_nothing_agrees_with_the_full_model_nothing_is_changed() -> None:
    rows = [make_row(100, 0.0, (0, 0)), make_row(10, 0.05, (0.01, 0.02), exit_layer=1)]
    choice = choose_storage(rows, StorageGoal())
    assert choice.recommended is rows[0]
    assert "beyond chance" in choice.reason


def test_two_goals_and_shares_that_are_none_are_refused() -> None:
    with pytest.raises(CalibrationError, match="wanted one of them"):
        StorageGoal(budget_bytes=1, agreement_share=0.9)
    for share in (0.0, 1.5):
        with pytest.raises(CalibrationError, match="wanted a share of the best"):
            StorageGoal(agreement_share=share)


def test_paired_queries_make_the_difference_more_certain_than_either_agreement() -> None:
    random = np.random.default_rng(1)
    current = random.normal(0.6, 0.3, 32)
    row = measure_setting(
        CURRENT,
        agreement=current + random.normal(0.02, 0.01, 32),
        current_agreement=current,
        bytes_per_page=1.0,
        pass_time_ratio=1.0,
    )
    assert row.clearly_better
    assert row.agreement_interval[0] < 0.6 < row.agreement_interval[1]
    assert np.ptp(row.difference_interval) < 0.1 * np.ptp(row.agreement_interval)


def test_the_interval_of_a_mean_is_that_of_its_standard_error() -> None:
    values = np.random.default_rng(2).normal(0.5, 0.2, 400)
    low, high = bootstrap_interval(values)
    error = 1.96 * values.std() / np.sqrt(len(values))
    assert (low, high) == pytest.approx((values.mean() - error, values.mean() + error), abs=0.1 * error)
    assert bootstrap_interval(values) == (low, high)


def test_the_docs_name_the_loss_that_counts_as_none() -> None:
    commands = (Path(__file__).parents[2] / "docs" / "commands.md").read_text()
    assert f"excludes a loss above {TOLERANCE}." in re.sub(r"\s+", " ", commands)
