"""`ridgerank index`: documents into a store."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ridgerank.documents.outcomes import Failure
    from ridgerank.indexing import IndexPlan, IndexReport

SOME_FAILED = 3
"""Exit status when the work was done but some files could not be read."""


def index(
    paths: Annotated[list[Path], typer.Argument(help="PDFs, images, folders of both.", show_default=False)],
    store: Annotated[str, typer.Option(help="Folder or URL of the page store.", show_default=False)],
    backbone: Annotated[
        str,
        typer.Option(help="Model: a folder, a hub name (owner/name) or a short name.", show_default=False),
    ],
    exit_layer: Annotated[
        int | None, typer.Option(help="Read pages to this layer. [default: 21, or 3/4 of a smaller model]")
    ] = None,
    join_layer: Annotated[int, typer.Option(help="Below it the query runs alone; 0 is the paper.")] = 0,
    keep: Annotated[
        str, typer.Option(help="Visual positions to keep: a rule (stride, ink, spread) and a fraction.")
    ] = "stride 1/3",
    device: Annotated[str | None, typer.Option(help="cuda, mps or cpu. [default: the best there is]")] = None,
    dtype: Annotated[
        str | None, typer.Option(help="float32, bfloat16 or float16. [default: what suits the device]")
    ] = None,
    max_pixels: Annotated[
        int | None, typer.Option(help="Pixels of a page image. [default: what suits the model]")
    ] = None,
    prune: Annotated[
        bool, typer.Option("--prune", help="Afterwards the store holds these paths' pages and no others.")
    ] = False,
    processes: Annotated[
        int | None, typer.Option(help="Processes that render. [default: one a core]")
    ] = None,
) -> None:
    """Read documents once and store what the model made of each page.

    Pages already stored are skipped, by content; run it again after an interruption, or when documents
    were added or changed. A file that cannot be read is one line on stderr, the rest goes on, and the exit
    status is 3.

    Example: `ridgerank index reports/ --store pages --backbone Qwen/Qwen2.5-VL-7B-Instruct`
    """
    from ridgerank.store.keep import Keep

    kept = Keep.parse(keep)  # before the heavy imports: a slip of the fingers should not cost seconds
    from ridgerank.backbones.load import load_backbone, parse_dtype
    from ridgerank.indexing import index_documents

    model = load_backbone(backbone, device=device, dtype=parse_dtype(dtype), max_pixels=max_pixels)
    try:
        with _Progress() as progress:
            report = index_documents(
                paths,
                store,
                model,
                watcher=progress,
                exit_layer=exit_layer,
                join_layer=join_layer,
                keep=kept,
                prune=prune,
                processes=processes,
            )
    except KeyboardInterrupt:
        typer.echo(f"\ninterrupted; what was committed is safe in {store}: run it again to go on", err=True)
        raise typer.Exit(130) from None
    _summarize(report, store)
    if report.failures:
        raise typer.Exit(SOME_FAILED)


class _Progress:
    """A bar on stderr: pages done, pages a second, bytes a page, time left."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            console=self._console,
            disable=not sys.stderr.isatty(),
        )
        self._task = self._bar.add_task("listing", total=None, rate="")
        self._pages = self._bytes = 0

    def planned(self, plan: "IndexPlan") -> None:
        self._bar.reset(self._task, total=plan.pages - plan.stored, description="indexing")
        self._console.print(f"{plan.pages} pages, {plan.stored} of them stored already", highlight=False)

    def committed(self, pages: int, nbytes: int) -> None:
        self._pages, self._bytes = self._pages + pages, self._bytes + nbytes
        elapsed = self._bar.tasks[0].elapsed or 0.0
        speed = f"{self._pages / elapsed:.1f} pages/s, " if elapsed else ""
        rate = f"{speed}{self._bytes / self._pages / 1e6:.2f} MB/page"
        self._bar.update(self._task, advance=pages, rate=rate)

    def failed(self, failure: "Failure") -> None:
        self._console.print(
            f"not read: {failure}", style="yellow", markup=False, highlight=False, soft_wrap=True
        )

    def __enter__(self) -> "_Progress":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()


def _summarize(report: "IndexReport", store: str) -> None:
    facts = [f"{report.added} pages added", f"{report.skipped} stored before"]
    if report.removed:
        facts.append(f"{report.removed} removed")
    if report.copies:
        facts.append(f"{report.copies} copies of the same content")
    if report.passed_over:
        facts.append(f"{report.passed_over} files of other types passed over")
    if report.failures:
        facts.append(f"{len(report.failures)} not read")
    typer.echo(f"{store}: {', '.join(facts)}", err=True)
    if report.added:
        speed = report.added / report.seconds
        size = report.prefix_bytes / report.added / 1e6
        typer.echo(f"{speed:.2f} pages/s, {size:.2f} MB a page", err=True)
