"""`ridgerank check-model`: what a model does with two pages and four queries, and what it takes."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from ridgerank.cli.index_options import PromptName
from ridgerank.cli.options import STORED, AsJson, Device, Dtype
from ridgerank.cli.talk import say

if TYPE_CHECKING:
    from ridgerank.calibration.model_check import CheckPages, ModelCheck
    from ridgerank.page_sizing import PixelBudget

_TABLE_WIDTH = 150


def check_model_command(
    name: Annotated[
        str,
        typer.Argument(help="Model: a folder, a hub name or a short name.", show_default=False),
    ],
    device: Device = None,
    dtype: Dtype = None,
    prompt: PromptName = None,
    preset: Annotated[
        str, typer.Option(help="How pages are stored: small or paper.", rich_help_panel=STORED)
    ] = "small",
    as_json: AsJson = False,
) -> None:
    """Say whether a model can be its own teacher, and what it takes, before anything is indexed.

    Two pages are drawn, and four queries run over them: through the full model, and through the shallow pass
    over the pages as they would be stored. Each query is answered by one page; a model that can teach itself
    gives that page the higher score. Seconds are of this machine as it is now. The shipped miniatures get
    pages of their own world: they read no others.

    Example: `ridgerank check-model qwen2.5-vl-3b --dtype bfloat16`
    """
    from ridgerank.backbones.model_settings import ModelSettings
    from ridgerank.calibration.model_check import check_model
    from ridgerank.extras import require_packages
    from ridgerank.store.storage_setting import parse_storage_preset

    stored = parse_storage_preset(preset)
    if _is_miniature(name):
        require_packages("reportlab")
    say(f"loading {name}")
    backbone = ModelSettings(name, device, dtype, prompt=prompt).load()
    checked = check_model(backbone, _pages_for(name, backbone.page_budget), stored)
    if as_json:
        typer.echo(json.dumps(asdict(checked) | {"in_words": explain_verdict(checked)}, ensure_ascii=False))
        return
    _print_check(checked)
    typer.echo(explain_verdict(checked))


def explain_verdict(checked: "ModelCheck") -> str:
    """In plain words whether this model can serve as its own teacher."""
    total = len(checked.queries)
    margins = f"its margin (yes against no) puts the page that answers first in {checked.margins_right}"
    counted = f"{margins} of {total} queries"
    if checked.likelihoods_right is not None:
        counted += f", the likelihood of the query in {checked.likelihoods_right}"
    if not checked.sees_pages:
        return (
            "NO, and it cannot serve as a student either: after the stored layers its states hardly "
            f"depend on the page ({counted})."
        )
    if checked.verdict == "margin":
        return (
            f"YES, as far as {total} queries tell: {counted}. Guessing does that one time in {2**total}; "
            "`ridgerank calibrate` measures it on your pages."
        )
    if checked.verdict == "likelihood":
        return (
            f"YES, with the likelihood and not with the margin: {counted}. `ridgerank calibrate` measures "
            "both on your pages and takes the one that holds."
        )
    return (
        f"NO: {counted}; a readout would reproduce scores that do not rank. Its states may still serve, "
        "with a teacher that can: `ridgerank calibrate --teacher NAME`."
    )


def _pages_for(name: str, budget: "PixelBudget") -> "CheckPages":
    """Pages in plain English; for a shipped miniature, pages that it can read."""
    if _is_miniature(name):
        from ridgerank.miniature.check_pages import draw_check_pages

        return draw_check_pages(budget)
    from ridgerank.calibration.model_check import write_check_pages

    return write_check_pages()


def _is_miniature(name: str) -> bool:
    from ridgerank.shipped_models import shipped_folder

    return shipped_folder(name.lower()) is not None


def _print_check(checked: "ModelCheck") -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(width=_TABLE_WIDTH)
    table = Table("query", "answered by", "margin, page 1", "page 2", "likelihood, page 1", "page 2")
    for row in checked.queries:
        likelihoods = ["–", "–"] if row.likelihoods is None else [f"{each:.3f}" for each in row.likelihoods]
        margins = [f"{margin:+.3f}" for margin in row.margins]
        table.add_row(row.query, f"page {row.answering_page + 1}", *margins, *likelihoods)
    console.print(table)
    facts = Table(show_header=False, title=f"{checked.model}, {checked.dtype} on {checked.device}")
    for what, value in list_facts(checked):
        facts.add_row(what, value)
    console.print(facts)


def list_facts(checked: "ModelCheck") -> list[tuple[str, str]]:
    """What a check measured besides scores, as names and values with units."""
    memory = [("process", checked.peak_memory_bytes), ("GPU", checked.peak_device_bytes)]
    peaks = [f"{size / 1e9:.2f} GB ({where})" for where, size in memory if size is not None]
    return [
        ("weights", f"{checked.weights_bytes / 1e9:.2f} GB"),
        ("peak memory", ", ".join(peaks) or "this system does not tell"),
        (
            "bytes per page",
            f"{checked.bytes_per_page:,} of {checked.page_positions:,} positions ({checked.setting})",
        ),
        (
            "seconds per page",
            f"{checked.index_seconds_per_page:.2f} to index, "
            f"{checked.full_seconds_per_page:.2f} to calibrate",
        ),
        (
            "seconds per query and page",
            f"{checked.shallow_seconds_per_pair:.3f} shallow, "
            f"{checked.full_seconds_per_pair:.3f} at full depth",
        ),
        ("states of the two pages", f"{100 * checked.state_distance:.1f} % of their length apart"),
    ]
