r"""RidgeRank on real PDFs with a small language model over page text, question by question.

    python -m benchmarks.real_documents --documents DIR --queries queries.jsonl --qrels qrels.trec \
        --backbone DIR [--cross-encoder DIR] [--out results/real.json]

A question is about its own document: BM25 picks up to 20 of its pages, the others reorder them. The teacher
reads the candidates to full depth; readouts and weights come from the other kinds of document, as calibration
makes them (`real_documents_report.py`). Every question is written to `--checkpoints` when it is done: run the
same command again to go on. What is there by the end is evaluated, or, with `--evaluate`, at once. The table
is followed by one line of JSON.
"""

import argparse
import json
import logging
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.onnx_cross_encoder import OnnxCrossEncoder
from benchmarks.real_documents_questions import (
    Question,
    answerable,
    find_candidates,
    fingerprint,
    page_texts,
    read_questions,
)
from benchmarks.real_documents_report import report
from benchmarks.real_documents_speed import measure, print_speed
from benchmarks.report import publish
from ridgerank.atomic import replacing, replacing_text
from ridgerank.backbones.base import Backbone
from ridgerank.backbones.dense_prefixes import DensePrefixes
from ridgerank.backbones.load import load_backbone
from ridgerank.backbones.prefix import Prefix
from ridgerank.documents.ocr import has_little_text
from ridgerank.errors import DatasetError, RidgeRankError
from ridgerank.records import Page
from ridgerank.runs.trec import read_qrels
from ridgerank.store.compress import compress
from ridgerank.store.layout import PackedPrefix, block_of, pack, unpack
from ridgerank.store.model_lineage import default_exit_layer
from ridgerank.store.pruning import Keep
from ridgerank.store.stored_prefixes import StoredPrefixes

_LATENCY = "latency.json"

KEEPS = ("stride 1/3", "stride 1")
"""How stored pages are kept, the first as the paper does."""


class Reader:
    """The pages of one document at a time, each read once for all its questions."""

    def __init__(self, backbone: Backbone, *, exit_layer: int) -> None:
        self.backbone = backbone
        self.exit_layer = exit_layer
        self._document = ""
        self._read: dict[str, Prefix] = {}
        self._stored: dict[tuple[str, Keep], PackedPrefix] = {}

    def prefixes(self, pages: Sequence[Page], *, layers: int) -> list[Prefix]:
        """Uncompressed prefixes of at least so many layers."""
        found = []
        for page in pages:
            document = page.reference.rpartition("#")[0]
            if document != self._document:
                self._document, self._read, self._stored = document, {}, {}
            prefix = self._read.get(page.page_id)
            if prefix is None or len(prefix.keys) < layers:
                [prefix] = self.backbone.encode([self.backbone.content(page)], exit_layer=layers)
                self._read[page.page_id] = prefix
            found.append(prefix)
        return found

    def stored(self, pages: Sequence[Page], keep: Keep) -> list[PackedPrefix]:
        """The same pages cut at the exit layer and compressed, as bytes."""
        for page, prefix in zip(pages, self.prefixes(pages, layers=self.exit_layer), strict=True):
            if (page.page_id, keep) not in self._stored:
                cut = prefix.layers(0, self.exit_layer)
                self._stored[page.page_id, keep] = unpack(pack(compress(cut, page.image, keep)))
        return [self._stored[page.page_id, keep] for page in pages]


def ask_teacher(question: Question, pages: Sequence[Page], reader: Reader) -> dict[str, np.ndarray]:
    """Candidates, the retriever's scores and both targets, from one pass at full depth."""
    candidates, scores = find_candidates(question, pages)
    full = reader.prefixes(candidates, layers=reader.backbone.geometry.layers)
    targets = reader.backbone.targets([question.text], DensePrefixes(full))
    return {
        "references": np.array([page.reference for page in candidates]),
        "bm25": scores,
        "margin": targets["margin"].cpu().numpy(),
        "likelihood": targets["likelihood"].cpu().numpy(),
    }


def ask_stored(
    question: Question, pages: Sequence[Page], reader: Reader, keep: Keep
) -> dict[str, np.ndarray]:
    """States over the same candidates as they would be stored, and their bytes."""
    candidates, _ = find_candidates(question, pages)
    stored = reader.stored(candidates, keep)
    states = reader.backbone.both_states(question.text, StoredPrefixes.of(stored, join_layer=0))
    found = {f"{keep}, {state}": own.cpu().numpy() for state, own in states.items()}
    return found | {f"{keep}, bytes": np.array(np.mean([block_of(page).nbytes for page in stored]))}


def run_questions(
    questions: Sequence[Question],
    pages: dict[str, list[Page]],
    reader: Reader,
    folder: Path,
    keeps: Sequence[Keep],
) -> Iterator[Question]:
    """Ask what has not been asked yet; what was asked is on disk, whole, before the question is yielded."""
    folder.mkdir(parents=True, exist_ok=True)
    for question in questions:
        own = pages[question.document]
        path = folder / f"{question.query_id}.npz"
        if not path.exists():
            _save(path, ask_teacher(question, own, reader))
        for keep in keeps:
            path = folder / f"{question.query_id}.{keep.rule}-{float(keep.fraction):.3f}.npz"
            if not path.exists():
                _save(path, ask_stored(question, own, reader, keep))
        yield question


def _save(path: Path, found: dict[str, np.ndarray]) -> None:
    with replacing(path) as scratch, scratch.open("wb") as file:
        np.savez(file, allow_pickle=False, **found)


def cross_scores(
    questions: Sequence[Question], pages: dict[str, list[Page]], folder: Path, model: Path
) -> None:
    """Scores of a trained text cross encoder for the same candidates, beside the checkpoints."""
    encoder = OnnxCrossEncoder(model)
    for question in questions:
        path = folder / f"{question.query_id}.cross.npz"
        if path.exists() or not (folder / f"{question.query_id}.npz").exists():
            continue
        with np.load(folder / f"{question.query_id}.npz") as found:
            references = found["references"].tolist()
        texts = {page.reference: page.text for page in pages[question.document]}
        scores = encoder.score(question.text, [texts[reference] for reference in references])
        _save(path, {"cross": scores})


def _time(
    questions: Sequence[Question],
    pages: dict[str, list[Page]],
    reader: Reader,
    folder: Path,
    options: argparse.Namespace,
) -> None:
    """Time questions of different documents, kinds in turns, on one thread, and keep what was found."""
    if _timed(folder, options):
        return
    first = {question.document: question for question in reversed(questions)}
    chosen = [question for question in questions if first[question.document] is question][: options.latency]
    print(f"timing {len(chosen)} questions", flush=True)
    torch.set_num_threads(1)
    measured = measure(
        reader.backbone,
        [(question.text, find_candidates(question, pages[question.document])[0]) for question in chosen],
        exit_layer=reader.exit_layer,
        keeps=options.keeps,
        cross_encoder=OnnxCrossEncoder(options.cross_encoder) if options.cross_encoder else None,
    )
    with replacing_text(folder / _LATENCY) as file:
        file.write(json.dumps(measured))


def _timed(folder: Path, options: argparse.Namespace) -> bool:
    """Whether as much was timed before."""
    if not (folder / _LATENCY).exists():
        return False
    known = _read_latency(folder)
    arms = {f"{keep}, last" for keep in options.keeps}
    arms |= {"cross encoder"} if options.cross_encoder else set()
    return known["questions"] >= options.latency and arms <= set(known["processor_seconds"])


def _read_latency(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / _LATENCY).read_text(encoding="utf-8"))
    return found


def main() -> None:
    """Ask, evaluate, print a table, then one line of JSON."""
    options = parser().parse_args()
    logging.basicConfig(level=logging.WARNING)
    logging.getLogger("bm25s").setLevel(logging.WARNING)
    try:
        run(options)
    except RidgeRankError as error:
        sys.exit(f"error: {error}")


def run(options: argparse.Namespace) -> None:
    """Do what the command says."""
    torch.set_num_threads(options.threads)
    cache = options.checkpoints / "ocr" if options.ocr else None
    pages, bare = page_texts(options.documents, ocr_cache=cache)
    qrels = read_qrels(options.qrels)
    questions = answerable(read_questions(options.queries), pages, qrels)[: options.questions]
    name = f"{Path(options.backbone).name}-{options.page_text.replace(' ', '-')}"
    folder = options.checkpoints / f"{name}-{fingerprint(options.queries, pages, options.backbone)}"
    if not options.evaluate:
        _ask(questions, pages, folder, options)
    if options.cross_encoder:
        cross_scores(questions, pages, folder, options.cross_encoder)
    texts = {page.reference: page.text for document in pages.values() for page in document}
    unread = {reference for reference in bare if has_little_text(texts[reference])}
    evidence = [set(qrels[question.query_id]) for question in questions]
    found = report(
        {question.query_id: question.kind for question in _asked(questions, folder)},
        qrels,
        folder,
        keeps=options.keeps,
        evidence_without_text={
            "text layer": float(np.mean([bool(pages & bare) for pages in evidence])),
            "in use": float(np.mean([bool(pages & unread) for pages in evidence])),
        },
    )
    if (folder / _LATENCY).exists():
        found["latency"] = _read_latency(folder)
        print_speed(found["latency"])
    found |= {"backbone": Path(options.backbone).name, "page_text": options.page_text, "ocr": options.ocr}
    publish(found, options.out)


def _ask(
    questions: Sequence[Question], pages: dict[str, list[Page]], folder: Path, options: argparse.Namespace
) -> None:
    backbone = load_backbone(options.backbone, page_text=options.page_text)
    reader = Reader(backbone, exit_layer=default_exit_layer(backbone.geometry.layers))
    keeps = [Keep.parse(keep) for keep in options.keeps]
    start = time.perf_counter()
    for number, question in enumerate(run_questions(questions, pages, reader, folder, keeps), start=1):
        spent = time.perf_counter() - start
        print(f"{number}/{len(questions)} {question.query_id} {spent:.0f} s", flush=True)
    if options.latency:
        _time(questions, pages, reader, folder, options)


def _asked(questions: Sequence[Question], folder: Path) -> list[Question]:
    asked = [question for question in questions if (folder / f"{question.query_id}.npz").exists()]
    if not asked:
        raise DatasetError(f"{folder}: no question has been asked yet; run without --evaluate")
    return asked


def parser() -> argparse.ArgumentParser:
    """The command line."""
    wanted = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    wanted.add_argument("--documents", type=Path, required=True, help="a folder of PDFs")
    wanted.add_argument("--queries", type=Path, required=True, help="query_id, text, document, corpus")
    wanted.add_argument("--qrels", type=Path, required=True, help="TREC judgements of <file>#<page>")
    wanted.add_argument("--backbone", required=True, help="folder of a causal language model")
    wanted.add_argument(
        "--checkpoints", type=Path, default=Path("build/real_documents"), help="a folder to go on from"
    )
    wanted.add_argument("--retriever", choices=["bm25"], default="bm25")
    wanted.add_argument("--page-text", default="head 512", help="how much of a page is read")
    wanted.add_argument(
        "--ocr",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="read pages that carry no text layer (needs the extra ocr)",
    )
    wanted.add_argument("--cross-encoder", type=Path, help="folder of a trained ONNX cross encoder")
    wanted.add_argument("--questions", type=int, help="only so many, in turns over the kinds")
    wanted.add_argument("--evaluate", action="store_true", help="evaluate what is there, ask nothing")
    wanted.add_argument("--keeps", nargs="+", default=list(KEEPS), help="how stored pages are kept")
    wanted.add_argument("--latency", type=int, default=4, metavar="N", help="time N questions as well")
    wanted.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="to ask with")
    wanted.add_argument("--out", type=Path, help="also write the JSON here")
    return wanted


if __name__ == "__main__":
    main()
