"""Progress bars on stderr; a line every half minute where stderr is no terminal."""

import sys
from collections import Counter
from threading import Event, Thread
from typing import TYPE_CHECKING, Self

from ridgerank.cli.talk import is_quiet

if TYPE_CHECKING:
    from ridgerank.calibration.calibrate import Progress
    from ridgerank.documents.sources import Failure
    from ridgerank.indexing.progress import IndexPlan


LINE_SECONDS = 30.0
"""Where stderr is no terminal, a line as often as this says how far the work is."""


class Bar:
    """One bar for several stages, one after the other; `--quiet` leaves it out."""

    def __init__(self, what: str = "", *, line_seconds: float = LINE_SECONDS) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._console = Console(stderr=True)
        terminal = sys.stderr.isatty()
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            console=self._console,
            disable=is_quiet() or not terminal,
        )
        self._task = self._bar.add_task(what, total=None, rate="")
        self._line_seconds = line_seconds
        self._stopped = Event()
        self._lines = None if is_quiet() or terminal else Thread(target=self._print_lines, daemon=True)

    def start(self, what: str, total: int) -> None:
        """Start a stage."""
        self._bar.reset(self._task, total=total, description=what, rate="")

    @property
    def seconds(self) -> float:
        """Duration of the current stage."""
        return self._bar.tasks[0].elapsed or 0.0

    def advance(self, count: int = 1, *, rate: str = "") -> None:
        """Count further items, and show the rate."""
        self._bar.update(self._task, advance=count, rate=rate)

    def say(self, text: str, *, style: str | None = None) -> None:
        """Print a line above the bar; a line without a style is left out by `--quiet`."""
        if style is not None or not is_quiet():
            self._console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)

    def line(self) -> str:
        """How far the work is, in one line."""
        task = self._bar.tasks[0]
        if task.total is None:
            return f"{task.description}: {self.seconds:.0f} s"
        parts = [f"{task.description}: {task.completed:.0f} of {task.total:.0f}", f"{self.seconds:.0f} s"]
        if task.completed and task.completed < task.total:
            remaining = self.seconds * (task.total - task.completed) / task.completed
            parts.append(f"about {format_duration(remaining)} left")
        return ", ".join([*parts, *filter(None, [task.fields["rate"]])])

    def _print_lines(self) -> None:
        while not self._stopped.wait(self._line_seconds):
            self.say(self.line())

    def __enter__(self) -> Self:
        self._bar.start()
        if self._lines is not None:
            self._lines.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        if self._lines is not None:
            self._lines.join()
        self._bar.stop()


def format_duration(seconds: float) -> str:
    """A duration as people say it: `40 s`, `12 min`, `3.5 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


FAILURES_SHOWN = 3
"""Pages of one file, lost for the same reason, that get a line each."""


def format_speed(pages: int, seconds: float) -> str:
    """Pages per second; where that is less than one, seconds per page."""
    return f"{pages / seconds:.1f} pages/s" if pages >= seconds else f"{seconds / pages:.1f} s/page"


class IndexProgress:
    """An `IndexHook`: pages done, pages per second, bytes per page, on a bar."""

    def __init__(self, bar: Bar) -> None:
        self._bar = bar
        self._pages = self._bytes = 0
        self._failures: Counter[tuple[str, str]] = Counter()

    def planned(self, plan: "IndexPlan") -> None:
        """Say what is to be done."""
        self._bar.start("indexing", plan.pages - plan.stored)
        self._bar.say(f"{plan.pages} pages, {plan.stored} of them stored already")

    def committed(self, pages: int, nbytes: int) -> None:
        """Count pages."""
        self._pages, self._bytes = self._pages + pages, self._bytes + nbytes
        seconds = self._bar.seconds
        speed = f"{format_speed(self._pages, seconds)}, " if seconds else ""
        self._bar.advance(pages, rate=f"{speed}{self._bytes / self._pages / 1e6:.2f} MB/page")

    def failed(self, failure: "Failure") -> None:
        """Say what could not be read; a file that loses many pages gets few lines."""
        document = failure.reference.rpartition("#")[0] or failure.reference
        self._failures[document, failure.reason] += 1
        count = self._failures[document, failure.reason]
        if count <= FAILURES_SHOWN:
            self._bar.say(f"not read: {failure}", style="yellow")
        elif count == FAILURES_SHOWN + 1:
            self._bar.say(f"not read: more pages of {document}, for the same reason", style="yellow")


def show_steps(bar: Bar) -> "Progress":
    """The `progress` of a calibration: one step after the other on a bar."""
    shown, counted = "", 0

    def progress(step: str, done: int, total: int) -> None:
        nonlocal shown, counted
        if step != shown:
            bar.start(step, total)
            shown, counted = step, 0
        bar.advance(done - counted)
        counted = done

    return progress
