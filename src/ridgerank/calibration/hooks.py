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
    teacher: str = ""
    """Whose scores are the target, where it is not the model itself."""


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


class TuningHook(CalibrationHook, Protocol):
    """Called while storage settings are measured; targets and queries are counted as in a calibration."""

    def settings_planned(self, settings: int, pages: int, pages_to_encode: int) -> None:
        """Settings and the pages to try them on are known; the other pages were measured before."""

    def pages_measured(self, pages: int) -> None:
        """Further pages have been stored in all settings and queries run over them."""

    def settings_timed(self, settings: int) -> None:
        """The pass of further settings is timed."""


class SilentTuningHook(SilentCalibrationHook):
    """A `TuningHook` that does nothing."""

    def settings_planned(self, settings: int, pages: int, pages_to_encode: int) -> None:
        """Do nothing."""

    def pages_measured(self, pages: int) -> None:
        """Do nothing."""

    def settings_timed(self, settings: int) -> None:
        """Do nothing."""
