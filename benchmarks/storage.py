"""What a page costs and what its bytes keep: stored in several ways, on pages that no basis was fitted to.

    python -m benchmarks.storage [--backbone mini-qwen] [--out results/compression.json]
    python -m benchmarks.storage --backbone DIR --documents DIR    # a language model over text of real PDFs

The first row of a backbone is the paper's rule and int8, the others are qualities of the codec. `states_kept`
is the share of the states' squares that stays, states centred over the pages of a query as the readout sees
them; states over all positions in full precision are the reference. It needs no teacher. `time_ratio` is the
processor time of a query over 20 pages in memory over that of the first row, at the same exit layer.
`bytes_per_page` counts a thousandth of the basis.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks import publish
from benchmarks.tables import compression_table
from miniature import BACKBONES, weights
from miniature.corpora import find_plan, make_corpus
from miniature.draw import draw_corpus
from ridgerank.backbones.base import Backbone
from ridgerank.backbones.decoder import PrefixBatch
from ridgerank.backbones.load import load_backbone
from ridgerank.documents.render import PageRef, list_pages, render_pages
from ridgerank.lineage import STORAGE_PRESETS, Keep, StorageSetting
from ridgerank.records import Page, State, document_name
from ridgerank.store.codec import (
    StoredPrefixes,
    choose_group,
    compress,
    encode_shared,
    fit_basis,
    keep_positions,
)
from ridgerank.store.layout import PackedPrefix, pack, unpack

FITTED, SHOWN = ("elder", "fir"), ("alder", "birch")
"""Corpora of the miniature whose pages fit the basis, and those it is measured on."""
QUALITIES = (0.5, 1.0, 2.0)
"""Measured beside the preset's."""
_PAGES, _SAMPLED, _QUERIES, _REPEATS = 20, 64, 4, 7
_BASIS_SHARED_BY = 1000
_LEAST_TEXT, _THUMBNAIL_PIXELS, _DOCUMENTS, _FIRST_PAGES = 400, 10_000, 4, 12


def main() -> None:
    """Measure the backbones named, print a table, then one line of JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--backbone", action="append", help="embedded name or folder; both embedded ones")
    parser.add_argument("--documents", type=Path, help="for a folder: documents/, queries.jsonl, qrels.trec")
    parser.add_argument("--out", type=Path, help="rows of backbones measured before stay")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    for name in options.backbone or BACKBONES:
        if options.documents is not None:
            backbone = load_backbone(name, device="cpu", page_text="head 512")
            rows += measure(Path(name).name, backbone, *read_texts(options.documents))
        else:
            backbone = load_backbone(str(weights(name)), device="cpu")
            rows += measure(name, backbone, *draw_pages(backbone))
    if options.out is not None and options.out.exists():
        measured = {row["backbone"] for row in rows}
        known = json.loads(options.out.read_text())["rows"]
        rows = [*(row for row in known if row["backbone"] not in measured), *rows]
    print(compression_table(rows))
    publish({"candidates": _PAGES, "rows": rows}, options.out)


Contents = tuple[list[Any], list[Any], list[str]]
"""Pages to fit on, other pages, and queries."""


def draw_pages(backbone: Backbone) -> Contents:
    """Pages of corpora of the miniature, spread over their documents."""
    with tempfile.TemporaryDirectory() as folder:
        pages: dict[str, list[Page]] = {}
        for name in (*FITTED, *SHOWN):
            for _ in draw_corpus(make_corpus(find_plan(name)), Path(folder) / name):
                pass
            listed = [
                ref for ref in list_pages([Path(folder) / name / "documents"]) if isinstance(ref, PageRef)
            ]
            chosen = listed[:: max(1, len(listed) // (_SAMPLED // 2))][: _SAMPLED // 2]
            rendered = render_pages(chosen, max_pixels=backbone.page_budget)
            pages[name] = [page for page in rendered if isinstance(page, Page)]
        lines = (Path(folder) / SHOWN[0] / "queries.jsonl").read_text().splitlines()
    fitted = [backbone.content(page) for name in FITTED for page in pages[name]]
    shown = [backbone.content(page) for name in SHOWN for page in pages[name][: _PAGES // 2]]
    return fitted, shown, [json.loads(line)["text"] for line in lines[:: len(lines) // _QUERIES][:_QUERIES]]


def read_texts(folder: Path) -> Contents:
    """Texts of pages of real PDFs: five of each of the first documents are shown, the others fit."""
    listed = list_pages([folder / "documents"])
    refs = [ref for ref in listed if isinstance(ref, PageRef) and ref.number <= _FIRST_PAGES]
    texts: dict[str, list[str]] = {}
    for page in render_pages(refs, max_pixels=_THUMBNAIL_PIXELS):
        if isinstance(page, Page) and len(page.text) > _LEAST_TEXT:
            texts.setdefault(document_name(page.reference), []).append(page.text)
    names = [name for name in sorted(texts) if len(texts[name]) >= _PAGES // _DOCUMENTS]
    shown_names = names[:_DOCUMENTS]
    fitted = [text for name in names[_DOCUMENTS:] for text in texts[name][:4]]
    shown = [text for name in shown_names for text in texts[name][: _PAGES // _DOCUMENTS]]
    lines = map(json.loads, (folder / "queries.jsonl").read_text().splitlines())
    asked = [line["text"] for line in lines if line["document"] in shown_names]
    return fitted[:_SAMPLED], shown, asked[:_QUERIES]


def measure(
    name: str, backbone: Backbone, fitted: Sequence[Any], shown: Sequence[Any], queries: Sequence[str]
) -> list[dict[str, Any]]:
    """One row for each setting of one backbone."""
    presets = {
        preset: StorageSetting.from_preset(
            preset, layers=backbone.geometry.layers, reads_text=backbone.reads_text
        )
        for preset in STORAGE_PRESETS
    }
    small = presets["small"]
    sampled, pages = (
        [backbone.encode([page], exit_layer=small.exit_layer)[0] for page in each] for each in (fitted, shown)
    )
    shared = encode_shared(backbone, small.exit_layer)
    reference = _center(backbone, PrefixBatch(pages), queries)
    rows: list[dict[str, Any]] = []
    settings: list[tuple[Keep, float | None]] = [(presets["paper"].keep, None)]
    settings += [(small.keep, quality) for quality in sorted({*QUALITIES, small.quality or 1.0})]
    for keep, quality in settings:
        basis = None
        if quality is not None:
            basis = fit_basis(
                [keep_positions(page, keep, shared.shape[3]) for page in sampled],
                quality=quality,
                rotation=backbone.rotation(len(sampled[0].rotary)),
                shared=shared,
                layers_per_group=choose_group(backbone.geometry),
            )
        blocks = [pack(compress(page, keep, basis)) for page in pages]
        packed = [unpack(block, basis=basis) for block in blocks]
        found = _center(backbone, StoredPrefixes(packed), queries)
        basis_bytes = 0 if basis is None else len(basis.to_bytes()) / _BASIS_SHARED_BY
        rows.append(
            {
                "backbone": name,
                "setting": str(StorageSetting(keep, small.exit_layer, quality)),
                "keep": str(keep),
                "bytes_per_page": round(float(np.mean([len(block) for block in blocks])) + basis_bytes),
                "bytes_cached": round(float(np.mean([page.nbytes for page in packed]))),
                "states_kept": round(1 - float(((found - reference) ** 2).sum() / (reference**2).sum()), 3),
                "seconds": _time(backbone, packed, queries[0]),
                "default": quality == small.quality,
            }
        )
        print(rows[-1], flush=True)
    first = rows[0]["seconds"]
    return [{**row, "time_ratio": round(row.pop("seconds") / first, 2)} for row in rows]


def _center(backbone: Backbone, pages: PrefixBatch, queries: Sequence[str]) -> NDArray[np.float64]:
    """States (queries, pages, width), centred over the pages of each query."""
    state: State = "mean" if backbone.reads_text else "last"
    states = np.stack([backbone.states([query], pages, state=state).double().numpy() for query in queries])
    centred: NDArray[np.float64] = states - states.mean(axis=1, keepdims=True)
    return centred


def _time(backbone: Backbone, pages: Sequence[PackedPrefix], query: str) -> float:
    """The least processor time of a query over these pages."""
    run: Callable[[], object] = lambda: backbone.states([query], StoredPrefixes(pages))  # noqa: E731
    seconds = []
    for _ in range(_REPEATS):
        start = time.process_time()
        run()
        seconds.append(time.process_time() - start)
    return min(seconds)


if __name__ == "__main__":
    main()
