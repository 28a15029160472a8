"""What a page costs and what its bytes keep: the same lists over pages that are stored in several ways.

    python -m benchmarks.storage [--backbone mini-qwen] --work DIR --out results/compression.json
    python -m benchmarks.storage --backbone DIR --documents DIR --fit DIR --work DIR --out FILE

The first form ranks four corpora of the miniature; the second the text of PDFs with questions (documents/,
queries.jsonl, qrels.trec) by a language model, the basis fitted on the PDFs of another folder. The first row
of a backbone is the paper's rule and int8, the others are qualities of the codec. No basis was fitted to the
pages shown.

`states_kept` is the share of the states' squares that stays, centred over the candidates of a question,
against all positions in full precision. `agreement` is r, the mean correlation of readout and full model
within a list, the readout fitted on the other corpora or documents. `recovery_percent` is the share of the
fused full model's gain over the retriever; of real questions it is left out. `time_ratio` is the processor
time of a query over 20 pages in memory over that of the first row. `bytes_per_page` counts a thousandth of
the basis. What is done stays in --work, page by page: run it again to go on.
"""

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import publish
from benchmarks.stored_quality import (
    CANDIDATES,
    Part,
    Way,
    draw_parts,
    rank_quality,
    read_pages,
    run_part,
    split_questions,
)
from benchmarks.tables import compression_table
from miniature import BACKBONES, weights
from ridgerank.backbones.base import Backbone
from ridgerank.backbones.decoder import Prefix
from ridgerank.backbones.load import load_backbone
from ridgerank.lineage import StorageSetting
from ridgerank.store.codec import (
    StoredPrefixes,
    choose_group,
    compress,
    encode_shared,
    fit_basis,
    keep_positions,
)
from ridgerank.store.layout import Basis, PackedPrefix, pack, unpack

QUALITIES = (0.5, 1.0, 2.0)
"""Measured beside the preset's."""
_SAMPLED, _REPEATS, _BASIS_SHARED_BY = 64, 7, 1000


def main() -> None:
    """Measure the backbones named, print a table, then one line of JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--backbone", action="append", help="embedded name or folder; both embedded ones")
    parser.add_argument("--documents", type=Path, help="for a folder: documents/, queries.jsonl, qrels.trec")
    parser.add_argument("--fit", type=Path, help="for a folder: another one, whose pages fit the basis")
    parser.add_argument("--questions", type=int, default=1000, help="so many, spread over all")
    parser.add_argument("--work", type=Path, default=Path("build/storage"))
    parser.add_argument("--out", type=Path, help="rows of backbones and sets measured before stay")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    for name in options.backbone or BACKBONES:
        drawn = options.documents is None
        backbone = load_backbone(
            str(weights(name)) if drawn else name,
            device="cpu",
            dtype=torch.float32,
            page_text=None if drawn else "head 512",
        )
        facts = {"backbone": Path(name).name, "set": "miniature" if drawn else options.documents.name}
        if drawn:
            parts, fitted = draw_parts(backbone, options.work, sampled=_SAMPLED)
        else:
            parts = split_questions(backbone, options.documents, options.questions)
            fitted = list(read_pages(backbone, [options.fit / "documents"], _SAMPLED).values())
        rows += measure(facts, backbone, parts, fitted, options.work / "-".join(facts.values()))
    known: dict[str, Any] = {}
    if options.out is not None and options.out.exists():
        measured = {(row["backbone"], row["set"]) for row in rows}
        known = json.loads(options.out.read_text())
        rows = [*(row for row in known["rows"] if (row["backbone"], row["set"]) not in measured), *rows]
    print(compression_table(rows))
    publish({**known, "candidates": CANDIDATES, "rows": rows}, options.out)


def measure(
    facts: Mapping[str, str], backbone: Backbone, parts: Sequence[Part], fitted: Sequence[Any], work: Path
) -> list[dict[str, Any]]:
    """One row for each way to store the pages of one set."""
    paper, small = (
        StorageSetting.from_preset(name, layers=backbone.geometry.layers, reads_text=backbone.reads_text)
        for name in ("paper", "small")
    )
    ways = make_ways(backbone, fitted, replace(paper, exit_layer=small.exit_layer), small)
    run = partial(
        run_part, backbone=backbone, ways=list(ways.values()), names=list(ways), exit_layer=small.exit_layer
    )
    found = [run(part, work=work) for part in parts]
    seconds = time_ways(backbone, parts[0], list(ways.values()), small.exit_layer)
    rows = []
    for row, name in enumerate(ways):
        disk, memory = np.concatenate([of[f"bytes {row}"] for of in found]).mean(axis=0)
        quality: dict[str, float | None] = {**rank_quality(parts, found, row)}
        if backbone.reads_text:
            quality["recovery_percent"] = None
        rows.append(
            {
                **facts,
                "setting": name,
                "questions": sum(len(part.texts) for part in parts),
                "bytes_per_page": round(disk),
                "bytes_cached": round(memory),
                **quality,
                "time_ratio": round(seconds[row] / seconds[0], 2),
                "default": name == str(small),
            }
        )
    return rows


def make_ways(
    backbone: Backbone, fitted: Sequence[Any], paper: StorageSetting, small: StorageSetting
) -> dict[str, Way]:
    """The paper's way and qualities of the codec, by the name of their setting."""
    shared = encode_shared(backbone, small.exit_layer)
    prefixes = (backbone.encode([page], exit_layer=small.exit_layer)[0] for page in fitted)
    pages = [keep_positions(prefix, small.keep, shared.shape[3]) for prefix in prefixes]
    ways: dict[str, Way] = {str(paper): partial(store_page, setting=paper, basis=None)}
    for quality in sorted({*QUALITIES, small.quality or 1.0}):
        basis = fit_basis(
            pages,
            quality=quality,
            rotation=backbone.rotation(len(pages[0].rotary)),
            shared=shared,
            layers_per_group=choose_group(backbone.geometry),
        )
        setting = replace(small, quality=quality)
        ways[str(setting)] = partial(store_page, setting=setting, basis=basis)
    return ways


def store_page(prefix: Prefix, *, setting: StorageSetting, basis: Basis | None) -> tuple[PackedPrefix, int]:
    """A page as it comes back from a store, and its bytes there with its share of the basis."""
    block = pack(compress(prefix, setting.keep, basis))
    shared = 0 if basis is None else len(basis.to_bytes()) // _BASIS_SHARED_BY
    return unpack(block, basis=basis), len(block) + shared


def time_ways(backbone: Backbone, part: Part, ways: Sequence[Way], exit_layer: int) -> list[float]:
    """The least processor time of a query over 20 pages in memory, the ways taking turns."""
    names = list(dict.fromkeys(part.scored.pages))[:CANDIDATES]
    prefixes = [backbone.encode([part.contents[name]], exit_layer=exit_layer)[0] for name in names]
    stored = [[way(prefix)[0] for prefix in prefixes] for way in ways]
    seconds = np.full((_REPEATS, len(ways)), np.inf)
    for turn, row in product(range(_REPEATS), range(len(ways))):
        start = time.process_time()
        backbone.states(part.texts[:1], StoredPrefixes(stored[row]))
        seconds[turn, row] = time.process_time() - start
    return [float(each) for each in seconds.min(axis=0)]


if __name__ == "__main__":
    main()
