r"""RidgeRank on real PDFs with a small language model over page text, question by question.

    python -m benchmarks.real_documents --documents DIR --queries queries.jsonl --qrels qrels.trec \
        --backbone DIR [--cross-encoder DIR] [--out results/real.json]

A question is about one document: BM25 picks up to 20 of its pages, the other methods rerank them. The teacher
reads the candidates to full depth; readouts and weights come from the other kinds of document, as calibration
fits them (`real_documents_transfer.py`). Every question is written to `--checkpoints` when it is done: the
same command continues. `--evaluate` runs no model and evaluates the questions that are complete. The
table is followed by one line of JSON. Beside `--out` goes a CSV with the nDCG@5 of every method on every
question, from which `real_documents_resample` makes the intervals. `--other-folder` adds rows for which the
questions of another folder, run before with the same model, have taught readout, penalty and weight.
"""

import argparse
import logging
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch

from benchmarks.real_documents_checkpoints import (
    QuestionTable,
    checkpoint_folder,
    complete_questions,
    cross_path,
    load_questions,
    stored_path,
    teacher_path,
)
from benchmarks.real_documents_questions import (
    Question,
    QuestionFolder,
    find_candidates,
    paths_of,
    read_question_folder,
)
from benchmarks.real_documents_report import report
from benchmarks.real_documents_resample import write_questions
from benchmarks.real_documents_speed import measure_speed_once, print_speed, read_speed
from benchmarks.report import publish
from experiments.reproduce.stages.checkpoint import save_arrays
from ridgerank.backbones.base import Backbone
from ridgerank.backbones.dense_prefixes import DensePrefixes
from ridgerank.backbones.load import load_backbone
from ridgerank.backbones.prefix import Prefix
from ridgerank.calibration.onnx_cross_encoder import OnnxCrossEncoder
from ridgerank.errors import RidgeRankError
from ridgerank.records import Page
from ridgerank.store.compress import compress
from ridgerank.store.layout import PackedPrefix, block_shape, pack, unpack
from ridgerank.store.pruning import Keep
from ridgerank.store.storage_setting import default_exit_layer
from ridgerank.store.stored_prefixes import StoredPrefixes
from ridgerank.worker_process import usable_cores

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
            save_arrays(path, run_teacher(question, pages, reader))
        for keep in keeps:
            path = stored_path(folder, question.query_id, keep)
            if not path.exists():
                save_arrays(path, run_stored(question, pages, reader, keep))
        yield question


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
        save_arrays(path, {"cross": scores})


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
    folder = _read_folder(options.documents, options.queries, options.qrels, options)
    checkpoints = _checkpoints(folder, options)
    questions = folder.questions[: options.questions]
    if not options.evaluate:
        _run_model(questions, folder.documents, checkpoints, options)
    if options.cross_encoder:
        score_with_cross_encoder(questions, folder.documents, checkpoints, options.cross_encoder)
    qualities, results = report(
        _load_complete(folder, questions, checkpoints, options.keeps),
        folder.qrels,
        keeps=options.keeps,
        other_folder=_load_other_folder(options),
    )
    shares = folder.evidence_without_text()
    results["evidence_without_text"] = {name: round(share, 3) for name, share in shares.items()}
    if speed := read_speed(checkpoints):
        results["latency"] = speed
        print_speed(speed)
    results |= {"backbone": Path(options.backbone).name, "page_text": options.page_text, "ocr": options.ocr}
    publish(results, options.out)
    if options.out is not None:
        write_questions(qualities, options.out.with_name(f"{options.out.stem}_questions.csv"))


def _read_folder(documents: Path, queries: Path, qrels: Path, options: argparse.Namespace) -> QuestionFolder:
    cache = options.checkpoints / "ocr" if options.ocr else None
    return read_question_folder(documents, queries, qrels, ocr_cache=cache)


def _checkpoints(folder: QuestionFolder, options: argparse.Namespace) -> Path:
    return checkpoint_folder(options.checkpoints, folder, options.backbone, page_text=options.page_text)


def _load_complete(
    folder: QuestionFolder, questions: Sequence[Question], checkpoints: Path, keeps: Sequence[str]
) -> QuestionTable:
    complete = complete_questions(questions, checkpoints, [Keep.parse(keep) for keep in keeps])
    return load_questions(complete, folder.qrels, checkpoints, keeps)


def _load_other_folder(options: argparse.Namespace) -> QuestionTable | None:
    """The questions of the other folder, run before with the same model, by the rules they were run with."""
    other: Path | None = options.other_folder
    if other is None:
        return None
    folder = _read_folder(*paths_of(other), options)
    checkpoints, first = _checkpoints(folder, options), folder.questions[0].query_id
    run = [keep for keep in options.keeps if stored_path(checkpoints, first, Keep.parse(keep)).exists()]
    return _load_complete(folder, folder.questions, checkpoints, run)


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
        measure_speed_once(
            questions,
            documents,
            backbone,
            folder,
            exit_layer=reader.exit_layer,
            keeps=options.keeps,
            cross_encoder=options.cross_encoder,
            count=options.latency,
        )


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
    arguments.add_argument(
        "--other-folder",
        type=Path,
        metavar="DIR",
        help="also rank with what another folder (documents/, queries.jsonl, qrels.trec) teaches",
    )
    arguments.add_argument("--latency", type=int, default=4, metavar="N", help="time N questions as well")
    arguments.add_argument("--threads", type=int, default=usable_cores(), help="threads of the model")
    arguments.add_argument("--out", type=Path, help="also write the JSON here")
    return arguments


if __name__ == "__main__":
    main()
