"""Options that several commands share, each with one help text, and the parsing that goes with them."""

from pathlib import Path
from typing import Annotated

import typer

MODEL, STORED, FOUND, RANKED = "Model", "How pages are stored", "Retriever", "Ranking"
OUTPUT, MACHINES, READING = "Output", "Machines and caches", "Documents"
"""Headings of the options in `--help`."""

Store = Annotated[
    str, typer.Option(help="Folder or URL of the page store.", envvar="RIDGERANK_STORE", show_default=False)
]
OutFolder = Annotated[Path, typer.Option(help="Folder to write to.", show_default=False)]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print JSON instead of a table.", rich_help_panel=OUTPUT)
]
CandidateCount = Annotated[int, typer.Option(min=2, help="Candidate pages a query.", rich_help_panel=FOUND)]

BackboneName = Annotated[
    str | None,
    typer.Option(
        "--backbone", help="Model. [default: the one the store was made with]", rich_help_panel=MODEL
    ),
]
Device = Annotated[
    str | None,
    typer.Option(
        help="cuda, mps or cpu. [default: the best there is]",
        envvar="RIDGERANK_DEVICE",
        rich_help_panel=MODEL,
    ),
]
Dtype = Annotated[
    str | None,
    typer.Option(
        help="float32, bfloat16 or float16. [default: what suits the device]",
        envvar="RIDGERANK_DTYPE",
        rich_help_panel=MODEL,
    ),
]
ReadoutName = Annotated[
    str,
    typer.Option(
        help="Which of the store's calibrations to rank with.",
        envvar="RIDGERANK_READOUT",
        rich_help_panel=RANKED,
    ),
]
CalibratedRetriever = Annotated[
    str | None,
    typer.Option(help="Retriever. [default: the one that was calibrated]", rich_help_panel=FOUND),
]

MinScore = Annotated[
    float | None,
    typer.Option(
        min=0,
        max=1,
        help="Leave out pages whose relevance score (0 to 1) is below this, all of them if need be.",
        show_default=False,
        rich_help_panel=RANKED,
    ),
]

Documents = Annotated[
    list[str] | None,
    typer.Option(
        "--document",
        metavar="GLOB",
        help="Only documents of this name, as report.pdf or '2019/*'; may be given several times.",
        show_default=False,
        rich_help_panel=FOUND,
    ),
]
Where = Annotated[
    list[str] | None,
    typer.Option(
        "--where",
        metavar="KEY=VALUE",
        help="Only documents of which metadata.jsonl said this when they were indexed.",
        show_default=False,
        rich_help_panel=FOUND,
    ),
]


Ray = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="ADDRESS",
        help="Run on this Ray cluster: its address, auto, or local for one of this machine.",
        envvar="RIDGERANK_RAY",
        show_default=False,
        rich_help_panel=MACHINES,
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="With --ray: workers, a model each. [default: one a GPU, else one a CPU]",
        rich_help_panel=MACHINES,
    ),
]


def require_store(store: str) -> None:
    """Refuse a place where there is no store, before anything is imported that reads models."""
    from ridgerank.store.page_store import PageStore

    PageStore.open(store).close()


def require_tag(tag: str) -> None:
    """Refuse a run's tag that is not one word: it is a column of the file."""
    if not tag or tag.split() != [tag]:
        raise typer.BadParameter(f"tag {tag!r}, wanted one word", param_hint="--tag")
