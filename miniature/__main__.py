"""`python -m miniature draw`: the small world that is drawn here, and needs no download."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import track

from miniature.corpora import PLANS, find_plan, make_corpus
from miniature.draw import draw_corpus
from ridgerank.cli._console import echo
from ridgerank.cli.main import run_app

app = typer.Typer(
    name="miniature",
    help="The miniature: visual corpora drawn on the spot, to try everything on.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@app.callback()
def _group() -> None:
    """Keep `draw` a subcommand while it is the only command of the group."""


@app.command()
def draw(
    out: Annotated[Path, typer.Option(help="Folder to write to.", show_default=False)],
    corpus: Annotated[
        str | None,
        typer.Option(help="One corpus, by name or number; otherwise all twelve.", metavar="NAME|N"),
    ] = None,
) -> None:
    """Draw visual documents as PDF files, with queries and graded relevance.

    Writes documents/*.pdf, queries.jsonl and qrels.trec: one corpus into the folder itself, all twelve each
    into a folder of its name. The same corpus is the same to the byte; drawing again completes an
    interrupted run.

    Example: `python -m miniature draw --out corpus --corpus alder`
    """
    plans = [(find_plan(corpus), out)] if corpus else [(plan, out / plan.name) for plan in PLANS]
    for plan, folder in plans:
        drawn_corpus = make_corpus(plan)
        files = draw_corpus(drawn_corpus, folder)
        count = len(drawn_corpus.documents) + 2
        console = Console(stderr=True)
        for _ in track(files, description=plan.name, total=count, console=console):
            pass
        echo(
            f"{folder}: {len(drawn_corpus.documents)} documents, {len(drawn_corpus.pages())} pages, "
            f"{len(drawn_corpus.questions)} queries"
        )


if __name__ == "__main__":
    run_app(app)
