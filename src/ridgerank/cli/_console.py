"""What commands print on stderr: messages, a progress bar, and the options for fewer or more of them."""

import logging
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import typer
from typer.core import TyperGroup

_VERBOSITY = {"--quiet", "-q", "--verbose", "-v"}
_DOWNLOAD_BARS, _LIBRARY_BARS = "HF_HUB_DISABLE_PROGRESS_BARS", "TQDM_DISABLE"

WIDTH = 1000
"""Columns of an unbroken table; it takes those it needs."""

_quiet = False


def echo(text: str) -> None:
    """Print a line that `--quiet` leaves out."""
    if not _quiet:
        typer.echo(text, err=True)


def announce_folder(output: Path) -> None:
    """Say that the folder of a file is not there yet and is made."""
    if not output.parent.is_dir():
        echo(f"{output.parent}: a new folder")


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
    return f"{option}={os.path.expanduser(value)}" if option[:2] == "--" and value else word  # noqa: PTH111


LINE_SECONDS = 30.0
"""How often a line says how far the work is if stderr is not a terminal."""


class Bar:
    """One bar for several stages; without a terminal, a line every half minute. `--quiet` leaves it out."""

    def __init__(self, what: str = "") -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._console = Console(stderr=True)
        self._prints_lines = not sys.stderr.isatty()
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            console=self._console,
            disable=_quiet or self._prints_lines,
        )
        self._task = self._bar.add_task(what, total=None, rate="")
        self._said = time.monotonic()

    def start(self, what: str, total: int) -> None:
        """Start a stage."""
        self._bar.reset(self._task, total=total, description=what, rate="")

    @property
    def seconds(self) -> float:
        """Duration of the current stage."""
        return self._bar.tasks[0].elapsed or 0.0

    @property
    def done(self) -> int:
        """Items counted in the current stage."""
        return int(self._bar.tasks[0].completed)

    def show(self, what: str, done: int, total: int) -> None:
        """Show how far a stage is; it starts when it is first named."""
        if what != self._bar.tasks[0].description:
            self.start(what, total)
        self.advance(done - self.done)

    def advance(self, count: int = 1, *, rate: str = "") -> None:
        """Count further items, and show the rate."""
        self._bar.update(self._task, advance=count, rate=rate)
        if self._prints_lines and time.monotonic() >= self._said + LINE_SECONDS:
            self._said = time.monotonic()
            self.echo(self._line())

    def echo(self, text: str, *, style: str | None = None) -> None:
        """Print a line above the bar; a line without a style is left out by `--quiet`."""
        if style is not None or not _quiet:
            self._console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)

    def _line(self) -> str:
        task = self._bar.tasks[0]
        total = task.total or 0
        parts = [f"{task.description}: {task.completed:.0f} of {total:.0f}", f"{self.seconds:.0f} s"]
        if 0 < task.completed < total:
            remaining = self.seconds * (total - task.completed) / task.completed
            parts.append(f"about {format_duration(remaining)} left")
        return ", ".join([*parts, *filter(None, [task.fields["rate"]])])

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()


@contextmanager
def interruptible(safe: str) -> Iterator[None]:
    """An interruption ends the command with a line that says what is safe."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo(f"\ninterrupted; {safe}", err=True)
        raise typer.Exit(130) from None


def format_duration(seconds: float) -> str:
    """A duration as people say it: `40 s`, `12 min`, `3.5 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
