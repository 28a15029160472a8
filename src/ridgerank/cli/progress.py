"""Bars on stderr; where that is no terminal, lines."""

import sys
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from ridgerank.calibration.calibrate import CalibrationPlan


class Bar:
    """One bar that is told what it counts, again and again."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=self._console,
            disable=not sys.stderr.isatty(),
        )
        self._task = self._bar.add_task("", total=None)

    def start(self, what: str, total: int) -> None:
        """Begin to count something else."""
        self._bar.reset(self._task, total=total, description=what)

    def advance(self, count: int = 1) -> None:
        """Count on."""
        self._bar.update(self._task, advance=count)

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()


class CalibrationProgress:
    """What a calibration is doing, on a bar."""

    def __init__(self, bar: Bar) -> None:
        self._bar = bar
        self._queries = 0
        self._asking = False

    def calibrating(self, plan: "CalibrationPlan") -> None:
        """Say what is to be done."""
        self._queries = plan.queries
        self._bar.say(f"{plan.queries} queries, {plan.queries_from}")
        self._bar.say(
            f"{plan.pages} candidate pages, {plan.unseen} of them to be read at full depth"
            if plan.unseen
            else f"{plan.pages} candidate pages, targets of all of them known"
        )
        self._bar.start("full-depth targets", plan.unseen)

    def taught(self, pages: int) -> None:
        """Count pages."""
        self._bar.advance(pages)

    def asked(self, queries: int) -> None:
        """Count queries."""
        if not self._asking:
            self._asking = True
            self._bar.start("shallow states", self._queries)
        self._bar.advance(queries)
