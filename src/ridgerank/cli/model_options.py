"""Which model a command runs with where none is named, and how people are told."""

from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from ridgerank.backbones.base import Backbone
    from ridgerank.store.page_store import PageStore


DEFAULT_BACKBONE = "mini-qwen"


def default_backbone() -> str:
    """The model that serves where none is named: the embedded miniature; one line says what it can do."""
    typer.echo(
        "no --backbone named: mini-qwen serves, which reads only what `ridgerank miniature draw` draws; for "
        "real documents name a model, such as --backbone Qwen/Qwen2.5-VL-7B-Instruct",
        err=True,
    )
    return DEFAULT_BACKBONE


def backbone_for(
    store: "PageStore", name: str | None, *, device: str | None, dtype: str | None
) -> "Backbone":
    """The model a store was made with, by the name it was loaded by then or the one given now."""
    from ridgerank.backbones.model_settings import ModelSettings

    return ModelSettings.from_lineage(store.lineage, name=name, device=device, dtype=dtype).load()
