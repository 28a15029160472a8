"""Stores of before page images were resized once: which of their pages were read with other pixels."""

import logging
from pathlib import PurePath
from typing import Any

from ridgerank.documents.sources import PDF_SUFFIXES
from ridgerank.lineage import Lineage
from ridgerank.store import lance_dataset, layout

logger = logging.getLogger(__name__)


def warn_of_older_images(dataset: Any, uri: str, lineage: Lineage) -> None:  # noqa: ANN401 (Lance is untyped)
    """Say which pages of a store differ from those `lineage` would add to it. Pages of PDF files never do."""
    if lance_dataset.read_lineage(dataset, uri).image_resize == lineage.image_resize:
        return
    with lance_dataset.wrap_errors(f"reading the page store at {uri}"):
        sources = set(dataset.to_table(columns=[layout.SOURCE]).column(layout.SOURCE).to_pylist())
    images = sorted(name for name in sources if PurePath(name).suffix.lower() not in PDF_SUFFIXES)
    if images:
        logger.warning(
            "the page store at %s holds images (%s) of a release that resized large ones twice; new pages "
            "are resized once, and scores of the older ones differ slightly: index them into a new store",
            uri,
            lance_dataset.shorten(images),
        )
