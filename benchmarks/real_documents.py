r"""RidgeRank on real PDFs with a small language model over page text, question by question.

    python -m benchmarks.real_documents --documents DIR --queries queries.jsonl --qrels qrels.trec \
        --backbone DIR [--cross-encoder DIR] [--out results/real.json]

A question is about one document: BM25 picks up to 20 of its pages, the other methods rerank them. The teacher
reads the candidates to full depth; readouts and weights come from the other kinds of document, as calibration
fits them (`real_documents_report.py`). Every question is written to `--checkpoints` when it is done: run the
same command again to continue. `--evaluate` runs no model and evaluates the questions that are complete. The
table is followed by one line of JSON.
"""

import argparse
import json
import logging
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.onnx_cross_encoder import OnnxCrossEncoder
from benchmarks.real_documents_checkpoints import complete_questions, cross_path, stored_path, teacher_path
from benchmarks.real_documents_questions import (
    Question,
    answerable,
    find_candidates,
    fingerprint,
    page_texts,
    read_questions,
)
from benchmarks.real_documents_report import report
from benchmarks.real_documents_speed import measure_speed, print_speed
from benchmarks.report import publish
from ridgerank.atomic import replace_file, replace_text_file
from ridgerank.backbones.base import Backbone
from ridgerank.backbones.dense_prefixes import DensePrefixes
from ridgerank.backbones.load import load_backbone
from ridgerank.backbones.prefix import Prefix
from ridgerank.documents.ocr import has_little_text
from ridgerank.errors import RidgeRankError
from ridgerank.records import Page
from ridgerank.runs.trec import read_qrels
from ridgerank.store.compress import compress
from ridgerank.store.layout import PackedPrefix, block_shape, pack, unpack
from ridgerank.store.model_lineage import default_exit_layer
from ridgerank.store.pruning import Keep
from ridgerank.store.stored_prefixes import StoredPrefixes
from ridgerank.worker_process import usable_cores

_LATENCY = "latency.json"

KEEPS = ("stride 1/3", "stride 1")
"""How stored pages are kept, the first as the paper does."""


class PageReader:
    """Encodes the pages of one document at a time, each page once for all questions about it."""

    def __init__(self, backbone: Backbone, *, exit_layer: int) -> None:
        self.backbone = backbone
        self.exit_layer = exit_layer
        self._document = ""
        self._prefixes: dict[str, Prefix] = {}
        self._stored: dict[tuple[str, Keep], PackedPrefix] = {}

    def prefixes(self, pages: Sequence[Page], *, layers: int) -> list[Prefix]:
        """Uncompressed prefixes of at least `layers` layers."""
        prefixes = []
        for page in pages:
            document = page.reference.rpartition("#")[0]
            if document != self._document:
                self._document, self._prefixes, self._stored = document, {}, {}
            prefix = self._prefixes.get(page.page_id)
            if prefix is None or len(prefix.keys) < layers:
                [prefix] = self.backbone.encode([self.backbone.content(page)], exit_layer=layers)
                self._prefixes[page.page_id] = prefix
            prefixes.append(prefix)
        return prefixes

    def stored(self, pages: Sequence[Page], keep: Keep) -> list[PackedPrefix]:
        """The same pages cut at the exit layer and compressed, as bytes."""
        for page, prefix in zip(pages, self.prefixes(pages, layers=self.exit_layer), strict=True):
            if (page.page_id, keep) not in self._stored:
                cut = prefix.layers(0, self.exit_layer)
                self._stored[page.page_id, keep] = unpack(pack(compress(cut, page.image, keep)))
        return [self._stored[page.page_id, keep] for page in pages]


def run_teacher(question: Question, pages: Sequence[Page], reader: PageReader) -> dict[str, np.ndarray]:
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


def run_stored(
    question: Question, pages: Sequence[Page], reader: PageReader, keep: Keep
) -> dict[str, np.ndarray]:
    """States over the same candidates as they would be stored, and their bytes."""
    candidates, _ = find_candidates(question, pages)
    stored = reader.stored(candidates, keep)
    states = reader.backbone.both_states(question.text, StoredPrefixes.of(stored, join_layer=0))
    arrays = {f"{keep}, {state}": values.cpu().numpy() for state, values in states.items()}
    return arrays | {f"{keep}, bytes": np.array(np.mean([block_shape(page).nbytes for page in stored]))}


def run_questions(
    questions: Sequence[Question],
    documents: dict[str, list[Page]],
    reader: PageReader,
    folder: Path,
    keeps: Sequence[Keep],
) -> Iterator[Question]:
    """Run what is missing. All checkpoints of a question are on disk before it is yielded."""
    folder.mkdir(parents=True, exist_ok=True)
    for question in questions:
        pages = documents[question.document]
        path = teacher_path(folder, question.query_id)
        if not path.exists():
            _save(path, run_teacher(question, pages, reader))
        for keep in keeps:
            path = stored_path(folder, question.query_id, keep)
            if not path.exists():
                _save(path, run_stored(question, pages, reader, keep))
        yield question


def _save(path: Path, arrays: dict[str, np.ndarray]) -> None:
    with replace_file(path) as scratch, scratch.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)


def score_with_cross_encoder(
    questions: Sequence[Question], documents: dict[str, list[Page]], folder: Path, model: Path
) -> None:
    """Save the scores of a trained text cross encoder for the same candidates beside the checkpoints."""
    encoder = OnnxCrossEncoder(model)
    for question in questions:
        path = cross_path(folder, question.query_id)
        if path.exists() or not teacher_path(folder, question.query_id).exists():
            continue
        with np.load(teacher_path(folder, question.query_id)) as arrays:
            references = arrays["references"].tolist()
        texts = {page.reference: page.text for page in documents[question.document]}
        scores = encoder.score(question.text, [texts[reference] for reference in references])
        _save(path, {"cross": scores})


def _measure_speed(
    questions: Sequence[Question],
    documents: dict[str, list[Page]],
    reader: PageReader,
    folder: Path,
    options: argparse.Namespace,
) -> None:
    """Time one question per document, kinds in turns, on one thread, and save the times."""
    if _is_measured(folder, options):
        return
    first = {question.document: question for question in reversed(questions)}
    timed = [question for question in questions if first[question.document] is question][: options.latency]
    print(f"timing {len(timed)} questions", flush=True)
    torch.set_num_threads(1)
    speed = measure_speed(
        reader.backbone,
        [(question.text, find_candidates(question, documents[question.document])[0]) for question in timed],
        exit_layer=reader.exit_layer,
        keeps=options.keeps,
        cross_encoder=OnnxCrossEncoder(options.cross_encoder) if options.cross_encoder else None,
    )
    with replace_text_file(folder / _LATENCY) as file:
        file.write(json.dumps(speed))


def _is_measured(folder: Path, options: argparse.Namespace) -> bool:
    """Whether an earlier run timed as many questions and the same methods."""
    if not (folder / _LATENCY).exists():
        return False
    known = _read_speed(folder)
    methods = {f"{keep}, last" for keep in options.keeps}
    methods |= {"cross encoder"} if options.cross_encoder else set()
    return known["questions"] >= options.latency and methods <= set(known["processor_seconds"])


def _read_speed(folder: Path) -> dict[str, Any]:
    speed: dict[str, Any] = json.loads((folder / _LATENCY).read_text(encoding="utf-8"))
    return speed


def main() -> None:
    """Run the questions, evaluate, print a table, then one line of JSON."""
    options = make_parser().parse_args()
    logging.basicConfig(level=logging.WARNING)
    logging.getLogger("bm25s").setLevel(logging.WARNING)
    try:
        run(options)
    except RidgeRankError as error:
        sys.exit(f"error: {error}")


def run(options: argparse.Namespace) -> None:
    """Run what is missing, unless only to evaluate; then evaluate the questions that are complete."""
    torch.set_num_threads(options.threads)
    cache = options.checkpoints / "ocr" if options.ocr else None
    documents, without_text = page_texts(options.documents, ocr_cache=cache)
    qrels = read_qrels(options.qrels)
    questions = answerable(read_questions(options.queries), documents, qrels)[: options.questions]
    name = f"{Path(options.backbone).name}-{options.page_text.replace(' ', '-')}"
    folder = options.checkpoints / f"{name}-{fingerprint(options.queries, documents, options.backbone)}"
    if not options.evaluate:
        _run_model(questions, documents, folder, options)
    if options.cross_encoder:
        score_with_cross_encoder(questions, documents, folder, options.cross_encoder)
    texts = {page.reference: page.text for pages in documents.values() for page in pages}
    unreadable = {reference for reference in without_text if has_little_text(texts[reference])}
    evidence = [set(qrels[question.query_id]) for question in questions]
    complete = complete_questions(questions, folder, [Keep.parse(keep) for keep in options.keeps])
    results = report(
        {question.query_id: question.kind for question in complete},
        qrels,
        folder,
        keeps=options.keeps,
        evidence_without_text={
            "text layer": float(np.mean([bool(pages & without_text) for pages in evidence])),
            "in use": float(np.mean([bool(pages & unreadable) for pages in evidence])),
        },
    )
    if (folder / _LATENCY).exists():
        results["latency"] = _read_speed(folder)
        print_speed(results["latency"])
    results |= {"backbone": Path(options.backbone).name, "page_text": options.page_text, "ocr": options.ocr}
    publish(results, options.out)


def _run_model(
    questions: Sequence[Question],
    documents: dict[str, list[Page]],
    folder: Path,
    options: argparse.Namespace,
) -> None:
    backbone = load_backbone(options.backbone, page_text=options.page_text)
    reader = PageReader(backbone, exit_layer=default_exit_layer(backbone.geometry.layers))
    keeps = [Keep.parse(keep) for keep in options.keeps]
    start = time.perf_counter()
    for number, question in enumerate(run_questions(questions, documents, reader, folder, keeps), start=1):
        spent = time.perf_counter() - start
        print(f"{number}/{len(questions)} {question.query_id} {spent:.0f} s", flush=True)
    if options.latency:
        _measure_speed(questions, documents, reader, folder, options)


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("--documents", type=Path, required=True, help="a folder of PDFs")
    arguments.add_argument("--queries", type=Path, required=True, help="query_id, text, document, corpus")
    arguments.add_argument("--qrels", type=Path, required=True, help="TREC judgements of <file>#<page>")
    arguments.add_argument("--backbone", required=True, help="folder of a causal language model")
    arguments.add_argument(
        "--checkpoints", type=Path, default=Path("build/real_documents"), help="a folder to go on from"
    )
    arguments.add_argument("--retriever", choices=["bm25"], default="bm25")
    arguments.add_argument("--page-text", default="head 512", help="how much of a page is read")
    arguments.add_argument(
        "--ocr",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="read pages that carry no text layer (needs the extra ocr)",
    )
    arguments.add_argument("--cross-encoder", type=Path, help="folder of a trained ONNX cross encoder")
    arguments.add_argument(
        "--questions", type=int, help="only the first N, in turns over the kinds", metavar="N"
    )
    arguments.add_argument(
        "--evaluate", action="store_true", help="evaluate the questions that are complete, run no model"
    )
    arguments.add_argument("--keeps", nargs="+", default=list(KEEPS), help="how stored pages are kept")
    arguments.add_argument("--latency", type=int, default=4, metavar="N", help="time N questions as well")
    arguments.add_argument("--threads", type=int, default=usable_cores(), help="threads of the model")
    arguments.add_argument("--out", type=Path, help="also write the JSON here")
    return arguments


if __name__ == "__main__":
    main()
