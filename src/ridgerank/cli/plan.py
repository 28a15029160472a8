"""`ridgerank plan`: what a corpus will take, before anything is indexed."""

import json
from dataclasses import asdict
from typing import Annotated

import typer

from ridgerank.cli.options import MODEL, STORED, AsJson


def plan_command(
    pages: Annotated[int, typer.Option(min=1, help="Pages of the corpus.", show_default=False)],
    backbone: Annotated[
        str, typer.Option(help="Model, by short name or repository.", rich_help_panel=MODEL)
    ] = "qwen2.5-vl-7b",
    gpu: Annotated[
        str, typer.Option(help="a100, a10, l4, or cpu for one core without any.", rich_help_panel=MODEL)
    ] = "a100",
    preset: Annotated[
        str, typer.Option(help="How pages are stored: small or paper.", rich_help_panel=STORED)
    ] = "small",
    as_json: AsJson = False,
) -> None:
    """Say what a corpus takes: bytes, hours to index, memory, time per request.

    Each line says whether it was measured, and where, or is arithmetic from a measurement of another model or
    device. Nothing is loaded. On pages of your own, `ridgerank tune` measures instead.

    Example: `ridgerank plan --pages 5000 --backbone smollm2-135m --gpu cpu`
    """
    from ridgerank.store.sizing import plan_corpus
    from ridgerank.store.storage_setting import parse_storage_preset

    figures = plan_corpus(pages, backbone, gpu.lower(), parse_storage_preset(preset))
    if as_json:
        typer.echo(json.dumps([asdict(figure) for figure in figures], ensure_ascii=False))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"{pages:,} pages, {backbone}, {gpu}")
    for title in ("what", "how much", "", "why"):
        table.add_column(title)
    for figure in figures:
        table.add_row(
            figure.name, f"{_three_digits(figure.value)} {figure.unit}", figure.origin, figure.basis
        )
    Console().print(table)


def _three_digits(value: float) -> str:
    """At least three digits, never an exponent."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
