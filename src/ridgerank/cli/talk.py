"""What commands say on stderr, and the options that every command takes to hear less or more of it."""

import inspect
import logging
import os
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

PANEL = "Talk"
Quiet = Annotated[
    bool,
    typer.Option("--quiet", "-q", help="Say only what went wrong.", rich_help_panel=PANEL),
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Say more.", rich_help_panel=PANEL)]
_LIBRARY_BARS = ("HF_HUB_DISABLE_PROGRESS_BARS", "TQDM_DISABLE")

Command = TypeVar("Command", bound=Callable[..., Any])
_quiet = False


def say(text: str) -> None:
    """Print a line that `--quiet` leaves out."""
    if not _quiet:
        typer.echo(text, err=True)


def warn(text: str) -> None:
    """Print a line that stands out, quiet or not."""
    typer.secho(f"warning: {text}", err=True, fg="yellow", bold=True)


def is_quiet() -> bool:
    """Whether the command was told to say only what went wrong."""
    return _quiet


def set_talk(*, quiet: bool, verbose: bool) -> None:
    """Choose how much is said; the two together are refused."""
    global _quiet
    if quiet and verbose:
        raise typer.BadParameter("say more, or only what went wrong: not both", param_hint="--quiet")
    _quiet = quiet
    level = logging.INFO if verbose else logging.WARNING
    handler = logging.StreamHandler(sys.stderr)
    handler.setLevel(level)  # some libraries set their own loggers to DEBUG
    logging.basicConfig(level=level, format="%(levelname)s: %(message)s", handlers=[handler], force=verbose)


def hide_library_bars() -> None:
    """Leave progress to our own lines; a variable that the user has set stays."""
    for name in _LIBRARY_BARS:
        os.environ.setdefault(name, "1")


class CommandGroup(typer.Typer):
    """Commands that take --quiet and --verbose after their name, too."""

    def command(self, name: str | None = None, **options: Any) -> Callable[[Command], Command]:  # noqa: ANN401
        """Register a function as a command."""
        register = super().command(name, **options)

        def decorate(function: Command) -> Command:
            register(_take_talk_options(function))
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


def _take_talk_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with two more parameters, which are used up before it is called."""

    @wraps(function)
    def command(*, quiet: bool = False, verbose: bool = False, **values: Any) -> Any:  # noqa: ANN401
        if quiet or verbose:
            set_talk(quiet=quiet, verbose=verbose)
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
