"""Which of several storage settings to index with: agreement with the full model against bytes.

Pure: records and arrays in, records out. Bytes are known exactly, agreement is measured on some queries, so a
setting is preferred to the store's own only where its agreement is shown, not where it may be luck:
- it is *clearly better* where the 95 % interval of its difference to the current setting is above 0;
- it is *not lower* where that interval holds no loss above `TOLERANCE`, and reaches 0.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ridgerank.errors import CalibrationError
from ridgerank.ragged import Floats
from ridgerank.store.storage_setting import StorageSetting

TOLERANCE = 0.02
"""A loss of r that counts as none."""
_RESAMPLES = 2000


@dataclass(frozen=True, slots=True)
class StorageGoal:
    """What is sought: the best agreement within a budget, or the smallest pages of enough agreement.

    With neither, the smallest pages whose agreement is not lower than the current setting's.
    """

    budget_bytes: int | None = None
    """Most bytes per page."""
    agreement_share: float | None = None
    """Least agreement, as a share of that of the best setting tried."""

    def __post_init__(self) -> None:
        if self.budget_bytes is not None and self.agreement_share is not None:
            raise CalibrationError("a budget and an agreement; wanted one of them: the other is the result")
        if self.agreement_share is not None and not 0 < self.agreement_share <= 1:
            raise CalibrationError(
                f"an agreement of {self.agreement_share}; wanted a share of the best setting's, as 0.95"
            )


@dataclass(frozen=True, slots=True)
class MeasuredSetting:
    """One setting with what it costs and gives."""

    setting: StorageSetting
    bytes_per_page: float
    """Mean over the pages measured, as on disk."""
    agreement: float
    """r: mean correlation of the readout with the full model, on lists it was not fitted on."""
    agreement_interval: tuple[float, float]
    """95 %, bootstrap over queries."""
    difference: float
    """r less that of the current setting."""
    difference_interval: tuple[float, float]
    """95 %, bootstrap over the same queries."""
    pass_time_ratio: float
    """Time of a query over pages in memory, divided by that of the current setting in the same run."""

    @property
    def clearly_better(self) -> bool:
        """Whether it agrees more than the current setting, beyond chance."""
        return self.difference_interval[0] > 0

    @property
    def not_lower(self) -> bool:
        """Whether a loss of agreement worth mentioning is excluded."""
        low, high = self.difference_interval
        return low >= -TOLERANCE and high >= 0


@dataclass(frozen=True, slots=True)
class StorageChoice:
    """The setting to index with, and why."""

    recommended: MeasuredSetting
    reason: str


def measure_setting(
    setting: StorageSetting,
    *,
    agreement: Floats,
    current_agreement: Floats,
    bytes_per_page: float,
    pass_time_ratio: float,
) -> MeasuredSetting:
    """A row of the table from the held-out r of each query, (lists,), here and in the current setting."""
    difference = agreement - current_agreement
    return MeasuredSetting(
        setting,
        bytes_per_page,
        float(agreement.mean()),
        bootstrap_interval(agreement),
        float(difference.mean()),
        bootstrap_interval(difference),
        pass_time_ratio,
    )


def bootstrap_interval(values: Floats) -> tuple[float, float]:
    """The 95 % interval of the mean of (lists,) values over resampled lists; the same draws every time."""
    drawn = np.random.default_rng(0).integers(0, len(values), (_RESAMPLES, len(values)))
    low, high = np.percentile(values[drawn].mean(axis=1), (2.5, 97.5))
    return float(low), float(high)


def find_frontier(rows: Sequence[MeasuredSetting]) -> tuple[MeasuredSetting, ...]:
    """The settings than which none is both as small and as good, smallest first."""
    frontier: list[MeasuredSetting] = []
    for row in sorted(rows, key=lambda row: (row.bytes_per_page, -row.agreement)):
        if not frontier or row.agreement > frontier[-1].agreement:
            frontier.append(row)
    return tuple(frontier)


def choose_storage(rows: Sequence[MeasuredSetting], goal: StorageGoal) -> StorageChoice:
    """The setting that meets the goal; the first row is the current setting, which stays in case of doubt."""
    current = rows[0]
    if goal.budget_bytes is not None:
        return _choose_within_budget(rows, goal.budget_bytes)
    if all(row.agreement_interval[0] <= 0 for row in rows):
        return StorageChoice(current, "no setting agrees with the full model beyond chance")
    if goal.agreement_share is not None:
        return _choose_by_agreement(rows, goal.agreement_share)
    smaller = [row for row in rows if row.bytes_per_page < current.bytes_per_page]
    as_good = [row for row in smaller if row.not_lower]
    if not as_good:
        reason = f"no smaller setting was shown to lose less than {TOLERANCE} of r; more queries may show one"
        return StorageChoice(current, reason if smaller else "no setting tried is smaller")
    return StorageChoice(_smallest(as_good), "the smallest setting whose r is not lower")


def refuse_budget(sizes: Mapping[StorageSetting, float], budget_bytes: int) -> CalibrationError:
    """Nothing of these bytes per page is within the budget: the smallest is named."""
    smallest = min(sizes, key=lambda setting: sizes[setting])
    return CalibrationError(
        f"no setting of {len(sizes)} fits into {budget_bytes / 1e6:.3f} MB per page: the smallest, "
        f"{smallest}, takes {sizes[smallest] / 1e6:.3f} MB; raise --budget, or try smaller ones "
        "(--keep 'value-norm 1/12', --bits 2, --exit-layer)"
    )


def _choose_within_budget(rows: Sequence[MeasuredSetting], budget_bytes: int) -> StorageChoice:
    current = rows[0]
    fitting = [row for row in rows if row.bytes_per_page <= budget_bytes]
    if not fitting:
        raise refuse_budget({row.setting: row.bytes_per_page for row in rows}, budget_bytes)
    best = max(fitting, key=lambda row: (row.agreement, -row.bytes_per_page))
    if current in fitting and best is not current and not best.clearly_better:
        return StorageChoice(current, "it is within the budget, and nothing within it is clearly better")
    return StorageChoice(best, "the best agreement within the budget")


def _choose_by_agreement(rows: Sequence[MeasuredSetting], share: float) -> StorageChoice:
    current = rows[0]
    best = max(row.agreement for row in rows)
    smallest = _smallest([row for row in rows if row.agreement >= share * best])
    if (
        smallest is not current
        and smallest.bytes_per_page >= current.bytes_per_page
        and not smallest.clearly_better
    ):
        return StorageChoice(
            current, f"nothing that reaches {share:g} of the best r is smaller or clearly better"
        )
    return StorageChoice(smallest, f"the smallest setting with at least {share:g} of the best r, {best:.3f}")


def _smallest(rows: Sequence[MeasuredSetting]) -> MeasuredSetting:
    return min(rows, key=lambda row: (row.bytes_per_page, -row.agreement))
