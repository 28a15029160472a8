"""Large stores in little time: a few dozen pages encoded once, their prefixes written under many ids.

Everything a reader does is the same as with real pages; only `ridgerank store check` would notice that the
checksums are those of the pages that were copied.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
from lance.fragment import write_fragments
from PIL import Image, ImageDraw

from ridgerank.backbones.base import Backbone
from ridgerank.calibration.artifact import Calibration, Diagnostics
from ridgerank.fusion.estimate import user_estimate
from ridgerank.lineage import Lineage
from ridgerank.readout.readout import Readout
from ridgerank.store import layout, rows
from ridgerank.store.compress import compress, encode_shared
from ridgerank.store.layout import SharedPrefix
from ridgerank.store.model_lineage import make_lineage
from ridgerank.store.rows import PageRow, StoredPage
from ridgerank.store.storage_setting import StoragePreset, StorageSetting
from ridgerank.store.store_writer import StoreWriter
from ridgerank.store.vector_columns import VectorOrigin

PAGES_A_FRAGMENT = 64
"""As indexing commits them."""
_FRAGMENTS_A_COMMIT = 256


def page_id(number: int) -> str:
    """The id of a page, as good as random."""
    return hashlib.blake2b(f"page {number}".encode(), digest_size=32).hexdigest()


def reference(number: int) -> str:
    """The name of a page: ten to a document."""
    return f"report-{number // 10}.pdf#{number % 10 + 1}"


@dataclass(frozen=True, slots=True, eq=False)
class Originals:
    """Pages to copy, and what a store of them needs besides."""

    lineage: Lineage
    rows: list[PageRow]
    shared: SharedPrefix | None


def encode_originals(backbone: Backbone, preset: StoragePreset, count: int = PAGES_A_FRAGMENT) -> Originals:
    """Pages of bars, encoded and compressed as indexing does it."""
    setting = StorageSetting.from_preset(preset, layers=backbone.geometry.layers, reads_text=False)
    depth = setting.exit_layer
    shared = encode_shared(backbone, setting.numbers, exit_layer=depth, join_layer=0)
    generator = np.random.default_rng(0)
    rows: list[PageRow] = []
    for start in range(0, count, 8):
        images = [_picture(generator, backbone.max_pixels) for _ in range(min(8, count - start))]
        for image, prefix in zip(images, backbone.encode(images, exit_layer=depth), strict=True):
            number = len(rows)
            page = StoredPage(page_id(number), (reference(number),), "report.pdf", "some words " * 20, b"")
            rows.append(PageRow(page, compress(prefix, image, setting.keep, setting.numbers, shared)))
    lineage = make_lineage(
        backbone, exit_layer=depth, join_layer=0, keep=setting.keep, numbers=setting.numbers
    )
    return Originals(lineage, rows, shared)


def write_store(uri: str, copied: Originals, pages: int, *, origin: VectorOrigin, vectors: int) -> None:
    """A store of `pages` whose prefixes are those of `copied` in turn, each with random vectors."""
    with StoreWriter(uri, copied.lineage, copied.shared) as writer:
        writer.open_vectors(origin)
    opened = lance.dataset(uri)
    schema = opened.schema
    table = rows.build_table(copied.rows, schema)
    generator = np.random.default_rng(1)
    fragments = []
    for first in range(0, pages, PAGES_A_FRAGMENT):
        count = min(PAGES_A_FRAGMENT, pages - first)
        numbers = range(first, first + count)
        drawn = generator.normal(size=(count, vectors, origin.dim))
        drawn /= np.linalg.norm(drawn, axis=2, keepdims=True)
        columns = {
            layout.PAGE_ID: [page_id(number) for number in numbers],
            layout.REFERENCES: [[reference(number)] for number in numbers],
            **rows.build_vector_columns(list(drawn.astype(np.float16)), origin.dim),
        }
        part = table.slice(0, count)
        for name, column in columns.items():
            field = schema.field(name)
            part = part.set_column(schema.get_field_index(name), field, pa.array(column, field.type))
        fragments += write_fragments(part, uri, schema=schema, data_storage_version=layout.LANCE_FILE_VERSION)
        if len(fragments) >= _FRAGMENTS_A_COMMIT or first + count == pages:
            operation = lance.LanceOperation.Append(fragments)
            opened = lance.LanceDataset.commit(uri, operation, read_version=opened.version)
            fragments = []


def any_calibration(lineage: Lineage, width: int, retriever: str) -> Calibration:
    """A readout nobody fitted: ranking takes the time it takes."""
    unknown = float("nan")
    weight = user_estimate(0.5)
    readout = Readout(np.random.default_rng(0).normal(size=width), 1.0, 0, 0, lineage)
    facts = Diagnostics(
        "", 0, 0, 20, 0, (), {}, {}, False, unknown, (0, 1), unknown, unknown, unknown, weight, None, ()
    )
    return Calibration(readout, weight, retriever, retriever, facts)


def folder_bytes(folder: Path) -> int:
    """Bytes of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _picture(generator: np.random.Generator, max_pixels: int) -> Image.Image:
    side = int(max_pixels**0.5) // 28 * 28
    image = Image.new("RGB", (side, side), "white")
    draw = ImageDraw.Draw(image)
    for _ in range(40):
        left, top = generator.integers(0, side - 40, 2).tolist()
        draw.rectangle((left, top, left + 36, top + 12), fill=int(generator.integers(0, 1 << 24)))
    return image
