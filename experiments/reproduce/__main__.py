"""`python -m experiments.reproduce`: the paper's tables and figures."""

from pathlib import Path
from typing import Annotated

import typer

from experiments.reproduce.pipeline import run_experiments
from experiments.reproduce.settings import make_settings
from ridgerank.cli._console import Bar, echo
from ridgerank.cli.main import run_app

app = typer.Typer(
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


@app.command()
def reproduce(
    out: Annotated[
        Path, typer.Option(help="Folder for tables, figures, claims and runs.", show_default=False)
    ],
    benchmark: Annotated[
        str,
        typer.Option(
            help="What to run on: miniature, vidore, vidore2, or a folder of corpora.",
            metavar="miniature|vidore|vidore2|folder:PATH",
        ),
    ] = "miniature",
    backbone: Annotated[
        list[str] | None,
        typer.Option(help="Backbones, the reference first. [default: the embedded two, or the paper's two]"),
    ] = None,
    retriever: Annotated[
        list[str] | None,
        typer.Option(help="Late interaction models. [default: the embedded two, or the paper's two]"),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(help="One of table1 … table9, figure2 … figure8, weights."),
    ] = None,
    work: Annotated[
        Path, typer.Option(help="Folder for intermediate results; a second run continues from there.")
    ] = Path("build/reproduce"),
    local: Annotated[
        Path | None, typer.Option(help="Folder with copies of the ViDoRe data sets. [default: the hub]")
    ] = None,
    language: Annotated[
        list[str] | None, typer.Option(help="Languages of ViDoRe's queries. [default: all]")
    ] = None,
    candidates: Annotated[int, typer.Option(min=5, help="Candidates per query.")] = 20,
    time_every: Annotated[
        int, typer.Option(min=1, help="Time full passes on every N-th query; 1 times all.", metavar="N")
    ] = 10,
    seeds: Annotated[
        int | None,
        typer.Option(
            min=2, help="Draws of few calibration queries, of table9 and figure8. [default: 5]", metavar="N"
        ),
    ] = None,
    ocr: Annotated[
        bool,
        typer.Option("--ocr", help="Read page text from images, for baselines that need text (slow)."),
    ] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="A small run: one backbone, one retriever, few queries.")
    ] = False,
    device: Annotated[str | None, typer.Option(help="cuda, mps or cpu. [default: the best there is]")] = None,
) -> None:
    """Run the paper's experiments: nine tables, seven figures, every claim.

    Everything computed is kept in the work folder: an interrupted run continues where it stopped, and tables
    are redone in a minute. A baseline that cannot run here is a row that says why.

    Example: `python -m experiments.reproduce --benchmark miniature --out results/miniature/reproduce`
    """
    settings = make_settings(
        benchmark,
        work,
        backbones=backbone or (),
        retrievers=retriever or (),
        local=local,
        languages=language,
        candidates=candidates,
        full_pass_every=time_every,
        device=device,
        ocr=ocr,
        quick=quick,
        draws=seeds,
    )
    try:
        with Bar() as bar:
            claims = run_experiments(
                settings,
                work / "stages",
                out,
                bar,
                only=only or (),
            )
    except KeyboardInterrupt:
        typer.echo("\ninterrupted; what was computed is kept: run it again to go on", err=True)
        raise typer.Exit(130) from None
    for claim in claims:
        typer.echo(f"{'holds' if claim.holds else 'does not hold here'}: {claim.claim} ({claim.measured})")
    echo(f"{out}: tables, figures, claims and runs")


if __name__ == "__main__":
    run_app(app)
