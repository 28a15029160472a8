"""What commands print on stderr: messages, a progress bar, and the options for fewer or more of them."""

import inspect
import logging
import os
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from threading import Event, Thread
from typing import Annotated, Any, Self, TypeVar

import typer

PANEL = "Messages"
Quiet = Annotated[
    bool,
    typer.Option("--quiet", "-q", help="Print only what went wrong.", rich_help_panel=PANEL),
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Print more.", rich_help_panel=PANEL)]
_DOWNLOAD_BARS, _LIBRARY_BARS = "HF_HUB_DISABLE_PROGRESS_BARS", "TQDM_DISABLE"

Command = TypeVar("Command", bound=Callable[..., Any])
_quiet = False


def echo(text: str) -> None:
    """Print a line that `--quiet` leaves out."""
    if not _quiet:
        typer.echo(text, err=True)


def warn(text: str) -> None:
    """Print a line that stands out, quiet or not."""
    typer.secho(f"warning: {text}", err=True, fg="yellow", bold=True)


def is_quiet() -> bool:
    """Whether only what went wrong is to be printed."""
    return _quiet


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


class CommandGroup(typer.Typer):
    """Commands that take --quiet and --verbose after their name, too."""

    def command(self, name: str | None = None, **options: Any) -> Callable[[Command], Command]:  # noqa: ANN401
        """Register a function as a command."""
        register = super().command(name, **options)

        def decorate(function: Command) -> Command:
            register(_take_verbosity_options(function))
            return function

        return decorate


_STORE_OPTIONS = ("store", "uri", "target", "backbone")
"""Options that are texts and may name a folder."""


def expand_home(name: str, value: object) -> object:
    """A path with the home folder for its `~`: shells leave `--store=~/pages` as it is."""
    if isinstance(value, Path):
        return value.expanduser() if value.parts[:1] == ("~",) else value
    if isinstance(value, list):
        return [expand_home(name, each) for each in value]
    if name in _STORE_OPTIONS and isinstance(value, str) and (value == "~" or value.startswith("~/")):
        return str(Path(value).expanduser())
    return value


def _take_verbosity_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with two more parameters, which are used up before it is called."""

    @wraps(function)
    def command(*, quiet: bool = False, verbose: bool = False, **values: Any) -> Any:  # noqa: ANN401
        if quiet or verbose:
            set_verbosity(quiet=quiet, verbose=verbose)
        return function(**{name: expand_home(name, value) for name, value in values.items()})

    signature = inspect.signature(function)
    extra = {"quiet": Quiet, "verbose": Verbose}
    parameters = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=annotation)
        for name, annotation in extra.items()
    ]
    command.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[*signature.parameters.values(), *parameters]
    )
    command.__annotations__ = {**function.__annotations__, **extra}
    return command


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

    def echo(self, text: str, *, style: str | None = None) -> None:
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
