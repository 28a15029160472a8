"""The `ridgerank` command: its subcommands, and how errors are shown."""

import os
import sys
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from ridgerank.cli._console import CommandGroup, hide_library_bars, set_verbosity
from ridgerank.cli.calibrate import calibrate_command
from ridgerank.cli.evaluate import evaluate_command
from ridgerank.cli.fuse import fuse_command
from ridgerank.cli.index import index_command
from ridgerank.cli.rank import rank_command
from ridgerank.cli.search import search_command
from ridgerank.cli.serve import serve_command
from ridgerank.cli.store import store
from ridgerank.cli.trial import trial_command
from ridgerank.errors import RidgeRankError
from ridgerank.extras import name_missing_extra
from ridgerank.version import __version__

app = typer.Typer(
    name="ridgerank",
    cls=CommandGroup,
    help="Rerank pages of PDFs, slides and scans with a language model, at a small part of its cost.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
app.command("index")(index_command)
app.command("calibrate")(calibrate_command)
app.command("search")(search_command)
app.command("rank")(rank_command)
app.command("serve")(serve_command)
app.command("trial")(trial_command)
app.add_typer(store, name="store")
app.command("fuse")(fuse_command)
app.command("evaluate")(evaluate_command)


def _show_version(show: bool) -> None:
    if show:
        typer.echo(f"ridgerank {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print only what went wrong (before or after the command).")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print more.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    set_verbosity(quiet=quiet, verbose=verbose)


def main() -> None:
    """Run the command line."""
    run_app(app)


def run_app(commands: typer.Typer) -> None:
    """Run commands; an error the user can act on is one line on stderr and exit status 1."""
    hide_library_bars()
    sys.stdout = sys.stdout or Path(os.devnull).open("w")  # noqa: SIM115 (both are None if closed)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # what is printed is UTF-8, as what is written, in any locale
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    try:
        commands()
        sys.stdout.flush()
    except RidgeRankError as error:
        _fail(error)
    except ModuleNotFoundError as error:
        missing = name_missing_extra(error)
        if missing is error:
            raise
        _fail(missing)
    except BrokenPipeError:  # the reader of stdout has closed it
        _abandon_stdout()
        sys.exit(141)
    except OSError as error:  # a full disk under stdout, a folder that may not be read
        _abandon_stdout()
        _fail(error)


def _abandon_stdout() -> None:
    """Python writes what is left of stdout when it ends: it goes nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(error: Exception) -> NoReturn:
    typer.echo(f"error: {error}", err=True)
    sys.exit(1)
