"""Options of commands that may run on a Ray cluster."""

from typing import Annotated

import typer

Ray = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="ADDRESS",
        help="Run on this Ray cluster: its address, auto, or local for one of this machine.",
        show_default=False,
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(min=1, help="With --ray: workers, a model each. [default: one a GPU, else one a CPU]"),
]
