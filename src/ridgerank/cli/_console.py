"""What commands print on stderr: messages, a progress bar, and the options for fewer or more of them."""

import logging
import os
import sys
from pathlib import Path
from threading import Event, Thread
from typing import Any, Self

import typer
from typer.core import TyperGroup

_VERBOSITY = {"--quiet", "-q", "--verbose", "-v"}
_DOWNLOAD_BARS, _LIBRARY_BARS = "HF_HUB_DISABLE_PROGRESS_BARS", "TQDM_DISABLE"

_quiet = False


def echo(text: str) -> None:
    """Print a line that `--quiet` leaves out."""
    if not _quiet:
        typer.echo(text, err=True)


def warn(text: str) -> None:
    """Print a line that stands out, quiet or not."""
    typer.secho(f"warning: {text}", err=True, fg="yellow", bold=True)


def set_verbosity(*, quiet: bool, verbose: bool) -> None:
    """Choose how much is printed; the two together are refused."""
    global _quiet
    if quiet and verbose:
        raise typer.BadParameter("not together with --verbose", param_hint="--quiet")
    _quiet = quiet
    if quiet:
        os.environ.setdefault(_DOWNLOAD_BARS, "1")
    level = logging.INFO if verbose else logging.WARNING
    handler = logging.StreamHandler(sys.stderr)
    handler.setLevel(level)  # some libraries set their own loggers to DEBUG
    logging.basicConfig(level=level, format="%(levelname)s: %(message)s", handlers=[handler], force=verbose)


def hide_library_bars() -> None:
    """Leave progress to our own lines, but for downloads; a variable that the user has set stays."""
    os.environ.setdefault(_LIBRARY_BARS, "1")
    if sys.stderr is not None and not sys.stderr.isatty():  # downloads write a line now and then
        os.environ.setdefault("TQDM_POSITION", "-1")
        os.environ.setdefault("TQDM_MININTERVAL", f"{LINE_SECONDS:g}")


class CommandGroup(TyperGroup):
    """Commands after whose name --quiet and --verbose may stand, too, and `~` in `--store=~/pages`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 (Click's, or Typer's own)
        """Put the flags of all commands first; shells leave the `~` behind a `=` as it is."""
        end = args.index("--") if "--" in args else len(args)
        flags = [word for word in args[:end] if word in _VERBOSITY]
        rest = [_expand_home(word) for word in args[:end] if word not in _VERBOSITY]
        parsed: list[str] = super().parse_args(ctx, [*flags, *rest, *args[end:]])
        return parsed


def _expand_home(word: str) -> str:
    option, _, value = word.partition("=")
    return f"{option}={Path(value).expanduser()}" if option[:2] == "--" and value[:1] == "~" else word


LINE_SECONDS = 30.0
"""How often a line says how far the work is if stderr is not a terminal."""


class Bar:
    """One bar for several stages, one after the other; `--quiet` leaves it out.

    Without a terminal, a line every half minute says how far the work is.
    """

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
            disable=_quiet or not terminal,
        )
        self._task = self._bar.add_task(what, total=None, rate="")
        self._line_seconds = line_seconds
        self._stopped = Event()
        self._lines = None if _quiet or terminal else Thread(target=self._print_lines, daemon=True)

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

    def echo(self, text: str, *, style: str | None = None) -> None:
        """Print a line above the bar; a line without a style is left out by `--quiet`."""
        if style is not None or not _quiet:
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
            self.echo(self.line())

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
