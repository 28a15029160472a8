"""`ridgerank reproduce`: the paper's tables and figures."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from experiments.reproduce.settings import Settings

_VIDORE = ("qwen2.5-vl-7b", "glm-4.1v-9b"), ("colnomic-7b", "colpali-v1.3")


def reproduce(
    out: Annotated[
        Path, typer.Option(help="Folder for tables, figures and report.html.", show_default=False)
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
        typer.Option(help="One of table1 … table9, figure2 … figure8, weights, significance."),
    ] = None,
    work: Annotated[
        Path, typer.Option(help="Folder for what is computed on the way; a second run goes on from there.")
    ] = Path("build/reproduce"),
    local: Annotated[
        Path | None, typer.Option(help="Folder with copies of the ViDoRe data sets. [default: the hub]")
    ] = None,
    language: Annotated[
        list[str] | None, typer.Option(help="Languages of ViDoRe's queries. [default: all]")
    ] = None,
    candidates: Annotated[int, typer.Option(min=5, help="Candidates a query.")] = 20,
    time_every: Annotated[
        int, typer.Option(min=1, help="Time full passes on every so many-th query; 1 times all.")
    ] = 25,
    ocr: Annotated[
        bool, typer.Option("--ocr", help="Read page text off images, for the arms that need text (slow).")
    ] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="A cut-down run: one backbone, one retriever, few queries.")
    ] = False,
    device: Annotated[str | None, typer.Option(help="cuda, mps or cpu. [default: the best there is]")] = None,
    processes: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Processes, each with its models, for what is not timed. "
            "[default: one a core for the embedded models on a CPU, else 1]",
        ),
    ] = None,
) -> None:
    """Run the paper's experiments: nine tables, seven figures, paired tests, one HTML report.

    Everything computed is kept in the work folder: an interrupted run goes on where it stopped, and tables
    are redone in a minute. An arm that cannot run here is a row that says why.

    Example: `ridgerank reproduce --benchmark miniature --out results/miniature/reproduce`
    """
    from experiments.reproduce.pipeline import reproduce as run
    from ridgerank.cli.progress_bars import Bar

    chosen = _settings(
        benchmark,
        work,
        backbone,
        retriever,
        local,
        language,
        candidates,
        time_every,
        device,
        ocr=ocr,
        quick=quick,
    )
    try:
        with Bar() as bar:
            claims = run(
                chosen, work / "stages", out, bar, only=only or (), processes=processes or _processes(chosen)
            )
    except KeyboardInterrupt:
        typer.echo("\ninterrupted; what was computed is kept: run it again to go on", err=True)
        raise typer.Exit(130) from None
    for claim in claims:
        typer.echo(f"{'holds' if claim.holds else 'does not hold here'}: {claim.claim} ({claim.found})")
    typer.echo(f"{out}: tables, figures and report", err=True)


def _processes(settings: "Settings") -> int:
    import os

    import torch

    on_cpu = settings.device == "cpu" or (settings.device is None and not torch.cuda.is_available())
    return len(os.sched_getaffinity(0)) if on_cpu and settings.arms == "miniature" else 1


def _settings(
    benchmark: str,
    work: Path,
    backbones: list[str] | None,
    retrievers: list[str] | None,
    local: Path | None,
    languages: list[str] | None,
    candidates: int,
    time_every: int,
    device: str | None,
    *,
    ocr: bool = False,
    quick: bool = False,
) -> "Settings":
    from experiments.datasets.load import load_benchmark
    from experiments.reproduce.settings import QUICK_CORPORA, Settings, quickly
    from ridgerank.shipped_models import BACKBONES, RETRIEVERS

    corpora = QUICK_CORPORA if quick and benchmark == "miniature" else None
    families = load_benchmark(benchmark, work / "corpora", languages=languages, local=local, corpora=corpora)
    default = _VIDORE if benchmark.startswith("vidore") else (BACKBONES, RETRIEVERS)
    backbones = backbones or list(default[0])
    settings = Settings(
        families=tuple(families),
        backbones=tuple(backbones),
        retrievers=tuple(retrievers or default[1]),
        # Beside the embedded models stand arms of their kind; published ones read real pages.
        arms="miniature" if set(backbones) <= set(BACKBONES) else "published",
        ocr=ocr,
        device=device,
        candidates=candidates,
        full_pass_every=time_every,
    )
    return quickly(settings) if quick else settings
