"""`ridgerank tune`: which way of storing pages to index with."""

import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ridgerank.cli.options import (
    BackboneName,
    CandidateCount,
    Device,
    Dtype,
    Store,
    parse_size,
    require_store,
)
from ridgerank.cli.talk import say

if TYPE_CHECKING:
    from ridgerank.calibration.storage_choice import MeasuredSetting
    from ridgerank.calibration.storage_tuning import TuningReport
    from ridgerank.cli.progress_bars import TuningProgress
    from ridgerank.store.page_store import PageStore

_TABLE_WIDTH = 150
"""Columns, of which fewer are used: nothing is cut off, whatever the terminal."""


def tune_command(
    store: Store,
    budget: Annotated[
        str | None,
        typer.Option(help="Most bytes per page, as 1MB or 300KB: the best agreement within it is chosen."),
    ] = None,
    agreement: Annotated[
        float | None,
        typer.Option(
            help="Choose the smallest pages whose agreement is at least this share of the best setting's: "
            "0.95 is 95 % of the highest r in the table, not an r of 0.95."
        ),
    ] = None,
    queries: Annotated[
        Path | None,
        typer.Option(
            help="Queries: JSON lines (query_id, text) or plain lines. [default: made from the pages]"
        ),
    ] = None,
    pages: Annotated[int, typer.Option(min=5, help="Pages to read again, at most.")] = 256,
    keep: Annotated[
        list[str] | None,
        typer.Option(help="Positions to try, as for `index`; repeatable. [default: a small grid]"),
    ] = None,
    bits: Annotated[
        list[str] | None, typer.Option(help="Bits to try, as for `index`; repeatable. [default: as above]")
    ] = None,
    exit_layer: Annotated[
        list[int] | None, typer.Option(help="Exit layers to try; repeatable. [default: as above]")
    ] = None,
    retriever: Annotated[
        str | None, typer.Option(help="Retriever. [default: the calibrated one, else the store's, else bm25]")
    ] = None,
    candidates: CandidateCount = 20,
    documents: Annotated[
        list[Path] | None,
        typer.Option(help="Where the documents are now. [default: where they were indexed from]"),
    ] = None,
    backbone: BackboneName = None,
    device: Device = None,
    dtype: Dtype = None,
    output: Annotated[Path | None, typer.Option(help="Write the table to this JSON file, too.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw agreement over bytes into this PNG file.")] = None,
) -> None:
    """Try ways to store pages on a sample of them, and say which to index with; no labels needed.

    For each setting the table has r, the held-out correlation of a readout with the full model that
    `calibrate` reports, the bytes of a page on disk, and the time of a pass as a ratio to the store's current
    setting. Intervals are 95 %, over queries. Where nothing is better beyond chance, the current setting
    stays. Without `--budget` and `--agreement` the smallest setting is chosen whose r is not lower than the
    current one's. With `--keep`, `--bits` or `--exit-layer` their combinations are tried; what is not named
    stays as in the store.

    The store is not changed. Pages are read again from their documents; an interrupted run goes on where it
    stopped, and further settings are added to those measured before.

    Example: `ridgerank tune --store pages --budget 1MB --plot tune.png`
    """
    from ridgerank.runs.queries import read_queries

    # All that can be refused is refused before a model is loaded.
    sample_queries = None if queries is None else read_queries(queries)
    budget_bytes = None if budget is None else parse_size(budget, option="--budget")
    require_store(store)
    from ridgerank.calibration.storage_choice import StorageGoal
    from ridgerank.calibration.storage_tuning import combine_settings, tune_storage
    from ridgerank.calibration.tuning_plot import plot_tuning, require_matplotlib
    from ridgerank.store.lance_dataset import local_root
    from ridgerank.store.number_format import NumberFormat
    from ridgerank.store.page_store import PageStore
    from ridgerank.store.pruning import Keep
    from ridgerank.store.storage_setting import StorageSetting

    goal = StorageGoal(budget_bytes, agreement)
    keeps, numbers = [Keep.parse(text) for text in keep or []], [NumberFormat.parse(b) for b in bits or []]
    if plot is not None:
        require_matplotlib()
    with _tuning_progress() as hook, PageStore.open(store) as opened:
        settings = None
        if keeps or numbers or exit_layer:
            current = StorageSetting.from_lineage(opened.lineage)
            settings = combine_settings(current, keeps=keeps, numbers=numbers, exit_layers=exit_layer or [])
        report = tune_storage(
            opened,
            goal=goal,
            settings=settings,
            backbone=backbone,
            retriever=retriever,
            queries=sample_queries,
            queries_from="" if queries is None else f"from {queries.name}",
            pages=pages,
            candidates=candidates,
            documents=documents or [],
            device=device,
            dtype=dtype,
            work=output.with_suffix(".work") if output is not None and local_root(store) is None else None,
            hook=hook,
        )
        command = _command(report, opened, documents or [])
    _print_table(report)
    if output is not None:
        from ridgerank.atomic import replace_text_file

        with replace_text_file(output) as file:
            file.write(json.dumps(_facts(report, store, command), indent=2, ensure_ascii=False) + "\n")
    if plot is not None:
        plot_tuning(report, plot)
    typer.echo(_conclusion(report, command))


@contextmanager
def _tuning_progress() -> "Iterator[TuningProgress]":
    from ridgerank.cli.progress_bars import Bar, TuningProgress

    try:
        with Bar() as bar:
            yield TuningProgress(bar)
    except KeyboardInterrupt:
        typer.echo("\ninterrupted; what was measured is kept: run it again to go on", err=True)
        raise typer.Exit(130) from None


def _command(report: "TuningReport", store: "PageStore", documents: list[Path]) -> str:
    """What to type to have the recommended setting; empty where the store has it."""
    chosen = report.choice.recommended.setting
    current = report.rows[0].setting
    if chosen == current:
        return ""
    options = {
        "--keep": (str(chosen.keep), str(current.keep)),
        "--bits": (str(chosen.numbers), str(current.numbers)),
        "--exit-layer": (str(chosen.exit_layer), str(current.exit_layer)),
    }
    target = f"{store.uri.rstrip('/')}-tuned"
    if report.repackable:
        words = ["store", "repack", store.uri, target]
        words += [word for name, (new, old) in options.items() if new != old for word in (name, new)]
        return shlex.join(["ridgerank", *words])
    lineage, vectors = store.lineage, store.info().retriever
    settings = {
        "--store": target,
        "--backbone": lineage.backbone,
        **{name: new for name, (new, _) in options.items()},
        "--join-layer": lineage.join_layer or None,
        "--max-pixels": lineage.max_pixels,
        "--page-text": lineage.page_text,
        "--prompt": lineage.prompt_name,
        "--retriever": None if vectors is None else vectors.source,
        "--pool": None if vectors is None or vectors.pool_factor == 1 else vectors.pool_factor,
    }
    words = [word for name, value in settings.items() if value is not None for word in (name, str(value))]
    return shlex.join(["ridgerank", "index", *_document_paths(store, documents), *words])


def _document_paths(store: "PageStore", documents: list[Path]) -> list[str]:
    """The paths given, or the folders of the documents the store was indexed from."""
    if documents:
        return [str(path) for path in documents]
    from ridgerank.store.sidecar import recall_sources

    return sorted({str(path.parent) for path in recall_sources(store.uri)})


def _conclusion(report: "TuningReport", command: str) -> str:
    best, current = report.choice.recommended, report.rows[0]
    if best is current:
        return f"Keep the store as it is, {current.setting}: {report.choice.reason}."
    low, high = best.difference_interval
    return (
        f"Index with {best.setting}: {report.choice.reason}; "
        f"{best.bytes_per_page / current.bytes_per_page:.2f} of the bytes, r {best.difference:+.3f} "
        f"({low:+.3f} to {high:+.3f}). Type:\n{command}"
    )


def _print_table(report: "TuningReport") -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for title in ("keep", "bits", "exit", "kB/page", "r (95 %)", "to current (95 %)", "time", ""):
        table.add_column(title, no_wrap=True)
    for row in sorted(report.rows, key=lambda row: row.bytes_per_page):
        setting = row.setting
        table.add_row(
            str(setting.keep),
            str(setting.numbers),
            str(setting.exit_layer),
            f"{row.bytes_per_page / 1e3:,.1f}",
            f"{row.agreement:.3f} ({{:.2f}} to {{:.2f}})".format(*row.agreement_interval),
            f"{row.difference:+.3f} ({{:+.2f}} to {{:+.2f}})".format(*row.difference_interval),
            f"{row.pass_time_ratio:.2f}",
            ", ".join(_marks(report, row)),
        )
    Console(width=_TABLE_WIDTH).print(table)
    say(
        f"{report.queries} queries {report.queries_from}, up to {report.candidates} of {report.pages} pages "
        f"each; {report.target}, {report.state}; r is of held-out queries"
    )
    if report.over_budget:
        say(f"{report.over_budget} settings of larger pages than the budget were not tried")


def _marks(report: "TuningReport", row: "MeasuredSetting") -> list[str]:
    from ridgerank.calibration.storage_choice import find_frontier

    marks = {
        "frontier": row in find_frontier(report.rows),
        "current": row is report.rows[0],
        "recommended": row is report.choice.recommended,
    }
    return [mark for mark, marked in marks.items() if marked]


def _facts(report: "TuningReport", store: str, command: str) -> dict[str, Any]:
    rows = [
        {
            "keep": str(row.setting.keep),
            "bits": str(row.setting.numbers),
            "exit_layer": row.setting.exit_layer,
            **{name: value for name, value in asdict(row).items() if name != "setting"},
            "marks": _marks(report, row),
        }
        for row in report.rows
    ]
    sample = {
        name: getattr(report, name)
        for name in ("target", "state", "queries", "queries_from", "pages", "candidates")
    }
    choice = {"recommended": str(report.choice.recommended.setting), "reason": report.choice.reason}
    return {"store": store, **sample, "settings": rows, **choice, "command": command}
