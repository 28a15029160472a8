"""`ridgerank store`: look at a page store, check it, remove documents."""

import json
from dataclasses import asdict
from itertools import chain
from typing import TYPE_CHECKING, Annotated

import typer

from ridgerank.cli._console import echo
from ridgerank.cli._options import AsJson
from ridgerank.errors import RidgeRankError

if TYPE_CHECKING:
    from ridgerank.store.maintenance import Damage

store = typer.Typer(no_args_is_help=True, help="Look at a page store, check it, remove documents.")

Uri = Annotated[str, typer.Argument(help="Folder or URL of the store.")]


@store.command()
def info(uri: Uri, as_json: AsJson = False) -> None:
    """Print how many pages a store holds, how large they are, and what they were made with."""
    from rich.console import Console
    from rich.table import Table

    from ridgerank.store.page_store import PageStore

    with PageStore.open(uri) as opened:
        facts = opened.info()
    if as_json:
        lineage = {"lineage": facts.lineage.to_dict(), "bytes_per_page": facts.bytes_per_page}
        typer.echo(json.dumps(asdict(facts) | lineage, ensure_ascii=False))
        return
    table = Table(show_header=False)
    table.add_row("pages", f"{facts.pages:,}")
    table.add_row(
        "prefixes", f"{facts.prefix_bytes / 1e6:,.1f} MB, {facts.bytes_per_page / 1e6:.3f} MB a page"
    )
    table.add_row("in memory", f"{facts.cached_bytes_per_page / 1e6:.3f} MB a page")
    table.add_row("setting", facts.lineage.storage.command_options())
    retriever = facts.retriever
    vectors = "none" if retriever is None else f"{retriever.source}, {retriever.dim} wide"
    table.add_row("retriever vectors", _printable(vectors))
    for name, value in facts.lineage.to_dict().items():
        table.add_row(name.replace("_", " "), _printable(str(value)))
    Console(markup=False).print(table)


@store.command("list")
def list_command(uri: Uri, as_json: AsJson = False) -> None:
    """Print the documents of a store: name, pages, size, and where each was indexed from.

    Example: `ridgerank store list pages`
    """
    from rich.console import Console
    from rich.table import Table

    from ridgerank.store.maintenance import list_stored_documents
    from ridgerank.store.page_store import PageStore

    with PageStore.open(uri) as opened:
        documents = list_stored_documents(opened)
    if as_json:
        for document in documents:
            typer.echo(json.dumps(asdict(document)))
        return
    table = Table("document", "pages", "MB", "indexed from")
    for document in documents:
        name = document.name or "(pages without a name)"
        size = f"{document.prefix_bytes / 1e6:,.1f}"
        path = _printable(document.path or "unknown")
        table.add_row(_printable(name), f"{document.pages:,}", size, path)
    Console(soft_wrap=True, markup=False).print(table)


def _printable(text: str) -> str:
    """Text on one line of a terminal, whatever it holds."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


@store.command()
def remove(
    uri: Uri,
    documents: Annotated[
        list[str], typer.Argument(help="Documents, as `store list` names them, globs, or their paths.")
    ],
) -> None:
    """Remove documents from a store; pages that another document has, too, stay.

    A search that starts later does not find them, nor does a server after a few seconds. Calibrations stay.

    Example: `ridgerank store remove pages report.pdf`
    """
    from ridgerank.store.maintenance import remove_documents

    report = remove_documents(uri, documents)
    kept = f", {report.kept} stay under another name" if report.kept else ""
    typer.echo(f"{uri}: {report.removed} pages removed{kept}", err=True)


@store.command()
def check(uri: Uri) -> None:
    """Read every byte of a store and compare it with its checksum.

    Prints a line for each damaged page or file; the exit status is 1 if there is any.
    """
    from ridgerank.calibration.artifact import find_damaged_calibrations
    from ridgerank.store.maintenance import find_damage
    from ridgerank.store.page_store import PageStore
    from ridgerank.store.sidecar import open_calibrations

    damaged: list[Damage] = []
    try:
        with open_calibrations(uri) as folder:
            for damage in chain(find_damage(uri), find_damaged_calibrations(folder)):
                damaged.append(damage)
                typer.echo(_printable(f"{damage.what}: {damage.reason}"))
        with PageStore.open(uri) as opened:
            pages = len(opened)
    except RidgeRankError as error:
        if not damaged:
            raise
        typer.echo(f"{uri}: {error}", err=True)
        raise typer.Exit(1) from None
    if damaged:
        typer.echo(f"{uri}: {_advise(damaged, pages)}", err=True)
        raise typer.Exit(1)
    echo(f"{uri}: {pages} pages, all as they were written")


def _advise(damaged: "list[Damage]", pages: int) -> str:
    """What is lost, and what to do about it."""
    from ridgerank.store.layout import BASIS

    if any(damage.what == BASIS for damage in damaged):
        return (
            f"none of its {pages} pages can be read without {BASIS}; restore that file from a copy, or "
            "index the documents into a new store"
        )
    damaged_pages = sum(damage.page_id is not None for damage in damaged)
    files = len(damaged) - damaged_pages
    beside = f" and {files} file{'s' if files > 1 else ''}" if files else ""
    return (
        f"{damaged_pages} of {pages} pages{beside} are damaged; restore them from a copy, or remove their "
        "documents (`ridgerank store remove`) and index these again"
    )
