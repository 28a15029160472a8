"""`ridgerank store`: look at a page store, and check it."""

import json
from dataclasses import asdict
from typing import Annotated

import typer

from ridgerank.cli.options import AsJson

store = typer.Typer(no_args_is_help=True, help="Look at a page store, and check it.")

Uri = Annotated[str, typer.Argument(help="Folder or URL of the store.", show_default=False)]


@store.command()
def info(uri: Uri, as_json: AsJson = False) -> None:
    """Print how many pages a store holds, how large they are, and what they were made with."""
    from rich.console import Console
    from rich.table import Table

    from ridgerank.store.page_store import PageStore

    with PageStore.open(uri) as opened:
        facts = opened.info()
    if as_json:
        typer.echo(json.dumps(asdict(facts) | {"bytes_per_page": facts.bytes_per_page}, ensure_ascii=False))
        return
    table = Table(show_header=False)
    table.add_row("pages", f"{facts.pages:,}")
    table.add_row(
        "prefixes", f"{facts.prefix_bytes / 1e6:,.1f} MB, {facts.bytes_per_page / 1e6:.3f} MB a page"
    )
    retriever = facts.retriever
    table.add_row(
        "retriever vectors", "none" if retriever is None else f"{retriever.source}, {retriever.dim} wide"
    )
    for name, value in asdict(facts.lineage).items():
        table.add_row(name.replace("_", " "), str(value))
    Console().print(table)


@store.command()
def check(uri: Uri) -> None:
    """Read every byte of a store and compare it with its checksum; damaged pages are named.

    Prints a line for each damaged page; the exit status is 1 if there is any.
    """
    from ridgerank.store.check import find_damage
    from ridgerank.store.page_store import PageStore

    with PageStore.open(uri) as opened:
        pages = len(opened)
    damaged = 0
    for damage in find_damage(uri):
        damaged += 1
        typer.echo(f"{damage.what}: {damage.reason}")
    if damaged:
        typer.echo(
            f"{uri}: {damaged} of {pages} pages are damaged; remove the store's rows and index again",
            err=True,
        )
        raise typer.Exit(1)
    typer.echo(f"{uri}: {pages} pages, all as they were written", err=True)
