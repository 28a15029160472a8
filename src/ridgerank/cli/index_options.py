"""The options of `ridgerank index` that no other command has."""

from pathlib import Path
from typing import Annotated

import typer

from ridgerank.cli.options import FOUND, MACHINES, MODEL, RANKED, READING, STORED

DocumentPaths = Annotated[
    list[Path], typer.Argument(help="PDFs, images, folders of both.", show_default=False)
]
IndexBackbone = Annotated[
    str | None,
    typer.Option(
        help="Model: a folder, a hub name (owner/name) or a short name. [default: the store's own]",
        envvar="RIDGERANK_BACKBONE",
        show_default=False,
        rich_help_panel=MODEL,
    ),
]
MaxPixels = Annotated[
    int | None,
    typer.Option(help="Pixels of a page image. [default: what suits the model]", rich_help_panel=MODEL),
]
PageText = Annotated[
    str | None,
    typer.Option(
        help="Text of a page that a text model reads: its first tokens. [default: head 512]",
        rich_help_panel=MODEL,
    ),
]
PromptName = Annotated[
    str | None,
    typer.Option(help="Prompt of a text model. [default: what its tokenizer speaks]", rich_help_panel=MODEL),
]
PresetName = Annotated[
    str | None,
    typer.Option(
        help="Of a new store: small, the best measured (images: value-norm 1/5, 3/2 bits; text: "
        "value-norm 1/2, 4/2 group 32, layer 2/5), or paper (stride 1/3, 8 bits). [default: small]",
        rich_help_panel=STORED,
    ),
]
KeepRule = Annotated[
    str | None,
    typer.Option(
        help="Positions of the page to keep: a rule (stride, value-norm) and a fraction. "
        "[default: the store's, else the preset's]",
        rich_help_panel=STORED,
    ),
]
Bits = Annotated[
    str | None,
    typer.Option(
        help="Bits of a number: 8, 4, 3, 2, keys/values 3/1, or '4 group 32'. "
        "[default: the store's, else the preset's]",
        rich_help_panel=STORED,
    ),
]
ExitLayer = Annotated[
    int | None,
    typer.Option(
        help="Read pages to this layer. [default: the store's, else the preset's: 21, or 3/4 of a smaller "
        "model; 2/5 for text]",
        rich_help_panel=STORED,
    ),
]
Ocr = Annotated[
    bool,
    typer.Option(
        "--ocr",
        help="Read pages without a text layer off their image (slow, cached).",
        rich_help_panel=READING,
    ),
]
Prune = Annotated[
    bool,
    typer.Option(
        "--prune",
        help="Afterwards the store holds these paths' pages and no others.",
        rich_help_panel=READING,
    ),
]
RenderProcesses = Annotated[
    int | None,
    typer.Option(help="Processes that render. [default: one a core]", rich_help_panel=MACHINES),
]
VectorRetriever = Annotated[
    str | None,
    typer.Option(
        help="Late interaction model whose vectors to store, too. [default: the store's, if any]",
        rich_help_panel=FOUND,
    ),
]
AlsoCalibrate = Annotated[
    bool,
    typer.Option("--calibrate", help="Calibrate, too, while pages are read anyway.", rich_help_panel=RANKED),
]
CalibrationQueries = Annotated[
    Path | None,
    typer.Option(
        help="With --calibrate: its queries. [default: made from the pages]", rich_help_panel=RANKED
    ),
]
