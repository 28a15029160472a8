"""The plan of a calibration, and the hook that is called while it runs."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class CalibrationPlan:
    """What a calibration is about to do."""

    queries: int
    queries_from: str
    pages: int
    """Different pages among the candidates."""
    pages_to_encode: int
    """Of these, pages that have to be encoded because one of their targets is missing."""


class CalibrationHook(Protocol):
    """Called while a store is calibrated, for progress bars and logs."""

    def planned(self, plan: CalibrationPlan) -> None:
        """Queries and candidates are known."""

    def targets_stored(self, pages: int) -> None:
        """The targets of further pages are stored."""

    def queries_run(self, queries: int) -> None:
        """Further queries have run over their stored candidates."""


class SilentCalibrationHook:
    """A `CalibrationHook` that does nothing."""

    def planned(self, plan: CalibrationPlan) -> None:
        """Do nothing."""

    def targets_stored(self, pages: int) -> None:
        """Do nothing."""

    def queries_run(self, queries: int) -> None:
        """Do nothing."""
