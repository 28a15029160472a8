"""Options that several commands share, each with one help text, and the parsing that goes with them."""

import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from ridgerank.atomic import replace_text_file
from ridgerank.cli._console import announce_folder
from ridgerank.trec import Run, write_run

model = partial(typer.Option, rich_help_panel="Model")
storage = partial(typer.Option, rich_help_panel="How pages are stored")
retriever = partial(typer.Option, rich_help_panel="Retriever")
ranking = partial(typer.Option, rich_help_panel="Ranking")
output = partial(typer.Option, rich_help_panel="Output")
machine = partial(typer.Option, rich_help_panel="Machines and caches")
document = partial(typer.Option, rich_help_panel="Documents")

Store = Annotated[str, typer.Option(help="Folder or URL of the page store.", envvar="RIDGERANK_STORE")]
AsJson = Annotated[bool, output("--json", help="Print JSON instead of a table.")]
CandidateCount = Annotated[int, retriever(min=2, help="Pages the retriever finds for a query.")]

BackboneName = Annotated[
    str | None, model("--backbone", help="Model. [default: the one the store was made with]")
]
Device = Annotated[
    str | None, model(help="cuda, cpu or mps. [default: cuda, else cpu]", envvar="RIDGERANK_DEVICE")
]
Dtype = Annotated[
    str | None,
    model(help="float32, bfloat16 or float16. [default: the weights']", envvar="RIDGERANK_DTYPE"),
]
ReadoutName = Annotated[
    str, ranking(help="Which of the store's calibrations to rank with.", envvar="RIDGERANK_READOUT")
]
CalibratedRetriever = Annotated[
    str | None, retriever(help="Retriever. [default: the one that was calibrated]")
]

MinScore = Annotated[
    float | None, ranking(min=0, max=1, help="Leave out pages whose relevance score (0 to 1) is below this.")
]

Documents = Annotated[
    list[str] | None,
    retriever(
        "--document",
        metavar="GLOB",
        help="Only documents of this name, as report.pdf or '2019/*'; may be given several times.",
    ),
]
Where = Annotated[
    list[str] | None,
    retriever(
        "--where",
        metavar="KEY=VALUE",
        help="Only documents of which metadata.jsonl said this when they were indexed.",
    ),
]


Ray = Annotated[
    str | None,
    machine(
        "--ray",
        metavar="ADDRESS",
        help="Run on this Ray cluster: its address, auto, or local for one of this machine.",
        envvar="RIDGERANK_RAY",
    ),
]


def write_run_to(output: Path | None, run: Run) -> None:
    """Write a run to a file, whole or not at all, or to stdout."""
    if output is None:
        write_run(run, sys.stdout)
    else:
        announce_folder(output)
        with replace_text_file(output) as file:
            write_run(run, file)
