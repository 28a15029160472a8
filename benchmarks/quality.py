r"""RidgeRank on real PDFs with a small language model over page text, question by question.

    python -m benchmarks.quality --documents DIR --queries queries.jsonl --qrels qrels.trec \
        --backbone DIR [--cross-encoder DIR] [--out results/real.json]

A question is about one document: BM25 picks up to 20 of its pages, the other methods rerank them. The teacher
reads the candidates to full depth; readouts and weights come from the other kinds of document, as calibration
fits them. Every question is written to `--checkpoints` when it is done: the same command continues.
`--evaluate` runs no model and evaluates the questions that are complete. The table is followed by one line of
JSON. Beside `--out` goes a CSV with the nDCG@5 of every method on every question, from which the intervals
can be made again.
"""

import argparse
import json
import logging
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.report import publish
from experiments.baselines.onnx_cross_encoder import OnnxCrossEncoder
from experiments.real_documents.checkpoints import (
    QuestionTable,
    checkpoint_folder,
    complete_questions,
    cross_path,
    load_questions,
    stored_path,
    teacher_path,
)
from experiments.real_documents.questions import (
    DocumentIndex,
    Question,
    find_candidates,
    read_question_folder,
)
from experiments.real_documents.resample import (
    BASE,
    MEASURE,
    QuestionQualities,
    format_summary,
    round_qualities,
    summarize,
    summarize_recovery,
    write_questions,
)
from experiments.real_documents.transfer import (
    JUDGED,
    fuse_by_judgements,
    transfer_readouts,
)
from experiments.reproduce.stages.checkpoint import save_arrays
from ridgerank.atomic import replace_text_file
from ridgerank.backbones.base import Backbone
from ridgerank.backbones.decoder import Prefix, PrefixBatch
from ridgerank.backbones.load import load_backbone
from ridgerank.errors import RidgeRankError
from ridgerank.evaluation.metrics import evaluate
from ridgerank.lineage import Keep, default_exit_layer
from ridgerank.processes import usable_cores
from ridgerank.ragged import Floats
from ridgerank.records import STATES, TARGETS, Page, State
from ridgerank.store.codec import StoredPrefixes, compress
from ridgerank.store.layout import PackedPrefix, block_shape, pack, unpack
from ridgerank.trec import Qrels, Run

KEEPS = ("stride 1/3", "stride 1")
"""How stored pages are kept, the first as the paper does."""
_CROSS = "cross"
FULL, CROSS, RETRIEVAL = "full passes", "cross encoder", "retrieval"
_REPEATS = 3
"""Of the fast methods; full passes are run once per question."""
_OFFLINE_PAGES = 4
"""Pages per question whose indexing is timed."""
_FILE = "latency.json"


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
                self._stored[page.page_id, keep] = unpack(pack(compress(cut, keep)))
        return [self._stored[page.page_id, keep] for page in pages]


def run_teacher(question: Question, pages: Sequence[Page], reader: PageReader) -> dict[str, np.ndarray]:
    """Candidates, the retriever's scores and both targets, from one pass at full depth."""
    candidates, scores = find_candidates(question, pages)
    full = reader.prefixes(candidates, layers=reader.backbone.geometry.layers)
    targets = reader.backbone.targets([question.text], PrefixBatch(full))
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
    states = reader.backbone.both_states(question.text, StoredPrefixes(stored))
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
    cache = options.checkpoints / "ocr" if options.ocr else None
    folder = read_question_folder(options.documents, options.queries, options.qrels, ocr_cache=cache)
    checkpoints = checkpoint_folder(
        options.checkpoints, folder, options.backbone, page_text=options.page_text
    )
    questions = folder.questions[: options.questions]
    if not options.evaluate:
        _run_model(questions, folder.documents, checkpoints, options)
    if options.cross_encoder:
        score_with_cross_encoder(questions, folder.documents, checkpoints, options.cross_encoder)
    complete = complete_questions(questions, checkpoints, [Keep.parse(keep) for keep in options.keeps])
    table = load_questions(complete, folder.qrels, checkpoints, options.keeps)
    qualities, results = report(table, folder.qrels, keeps=options.keeps)
    shares = folder.evidence_without_text()
    results["evidence_without_text"] = {name: round(share, 3) for name, share in shares.items()}
    if speed := read_speed(checkpoints):
        results["latency"] = speed
    results |= {"backbone": Path(options.backbone).name, "page_text": options.page_text, "ocr": options.ocr}
    publish(results, options.out)
    if options.out is not None:
        write_questions(qualities, options.out.with_name(f"{options.out.stem}_questions.csv"))


def _run_model(
    questions: Sequence[Question],
    documents: dict[str, list[Page]],
    folder: Path,
    options: argparse.Namespace,
) -> None:
    backbone = load_backbone(options.backbone, page_text=options.page_text)
    reader = PageReader(backbone, exit_layer=default_exit_layer(backbone.geometry.layers))
    keeps = [Keep.parse(keep) for keep in options.keeps]
    for number, question in enumerate(run_questions(questions, documents, reader, folder, keeps), start=1):
        print(f"{number}/{len(questions)} {question.query_id}", flush=True)
    if options.latency:
        measure_speed_once(questions, documents, reader, folder, options)


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


def report(
    questions: QuestionTable, qrels: Qrels, *, keeps: Sequence[str]
) -> tuple[QuestionQualities, dict[str, Any]]:
    """Evaluate these questions; print a table; return every question's quality, and all for the JSON line."""
    judged = {query: qrels[query] for query in questions.queries if query in qrels}
    rows: dict[str, Floats] = {BASE: question_ndcg(questions, questions.columns["bm25"], judged)}
    all_weights: dict[str, Any] = {}
    for name, column in _full_models(questions).items():
        rows[name] = question_ndcg(questions, questions.columns[column], judged)
    for name, column in _full_models(questions).items():
        fused, all_weights[name] = fuse_by_judgements(questions, column)
        rows[f"{name}, {JUDGED}"] = question_ndcg(questions, fused, judged)
    for keep in keeps:
        transferred = transfer_readouts(questions, keep)
        for name, scores in (transferred.scores | transferred.fused).items():
            rows[f"{keep}, {name}"] = question_ndcg(questions, scores, judged)
        all_weights |= {f"{keep}, {name}": weights for name, weights in transferred.weights.items()}
    qualities = QuestionQualities(
        queries=tuple(questions.queries),
        documents=tuple(questions.documents),
        kinds=tuple(questions.kinds.tolist()),
        qualities=round_qualities(rows),
    )
    print(format_summary(qualities))
    return qualities, {
        "questions": len(qualities.queries),
        "documents": len(set(qualities.documents)),
        "intervals": "95 %, whole documents drawn with replacement",
        "table": summarize(qualities),
        "recovery": summarize_recovery(qualities),
        "weights": all_weights,
        "bytes_a_page": {
            keep: round(float(questions.per_question[f"{keep}, bytes"].mean())) for keep in keeps
        },
    }


def _full_models(questions: QuestionTable) -> dict[str, str]:
    """The models that read every candidate at full cost: name → column."""
    models = {f"teacher: {target}": str(target) for target in TARGETS}
    return models | ({"cross encoder": _CROSS} if _CROSS in questions.columns else {})


def question_ndcg(questions: QuestionTable, scores: Floats, qrels: Qrels) -> Floats:
    """(questions,) nDCG@5 in percent when candidates are ordered by `scores`."""
    owner = [questions.queries[number] for number in questions.lists.list_numbers()]
    # Equal scores keep the retriever's order: what no score tells apart is not shuffled.
    run = Run.of_columns(owner, questions.references, list(-questions.lists.ranks(scores).astype(float)))
    return evaluate(run, qrels, (MEASURE,)).of(MEASURE)


def measure_speed_once(
    questions: Sequence[Question],
    documents: Mapping[str, Sequence[Page]],
    reader: PageReader,
    folder: Path,
    options: argparse.Namespace,
) -> None:
    """Time one question of each document, kinds in turns, and save the times, unless that is done."""
    keeps, model = options.keeps, options.cross_encoder
    methods = {RETRIEVAL, *(f"{keep}, {STATES[0]}" for keep in keeps), *([CROSS] if model else [])}
    first = {question.document: question for question in reversed(questions)}
    timed = [question for question in questions if first[question.document] is question][: options.latency]
    known = read_speed(folder)
    if known and known["questions"] >= len(timed) and methods <= set(known["processor_seconds"]):
        return
    print(f"timing {len(timed)} questions", flush=True)
    torch.set_num_threads(1)
    cross_encoder = OnnxCrossEncoder(model) if model else None
    seconds: dict[str, list[float]] = {}
    offline: dict[str, list[float]] = {}
    for question in timed:
        pages = documents[question.document]
        spent, indexed = _time_question(reader, question.text, pages, keeps, cross_encoder)
        for name, value in spent.items():
            seconds.setdefault(name, []).append(value)
        for name, value in indexed.items():
            offline.setdefault(name, []).append(value)
    speed = {
        "questions": len(timed),
        "processor_seconds": {name: round(statistics.median(times), 4) for name, times in seconds.items()},
        "times_faster": _ratios(seconds, FULL),
        "times_faster_than_cross_encoder": _ratios(seconds, CROSS),
        "offline_seconds_a_page": {name: round(statistics.median(t), 3) for name, t in offline.items()},
    }
    with replace_text_file(folder / _FILE) as file:
        file.write(json.dumps(speed))


def read_speed(folder: Path) -> dict[str, Any]:
    """The times that were saved; empty where there are none."""
    path = folder / _FILE
    speed: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return speed


def _ratios(seconds: Mapping[str, Sequence[float]], reference: str) -> dict[str, float]:
    """How many times faster each method is, question by question: the median."""
    if reference not in seconds:
        return {}
    return {
        name: round(statistics.median(a / b for a, b in zip(seconds[reference], times, strict=True)), 1)
        for name, times in seconds.items()
        if name not in (reference, RETRIEVAL, FULL)
    }


def _time_question(
    reader: PageReader,
    query: str,
    document: Sequence[Page],
    keeps: Sequence[str],
    cross_encoder: OnnxCrossEncoder | None,
) -> tuple[Mapping[str, float], Mapping[str, float]]:
    """Seconds of each method on one query, retrieval included, and seconds to index a page."""
    backbone, exit_layer = reader.backbone, reader.exit_layer
    index = DocumentIndex(document)
    order, _ = index.find(query)
    pages = [document[row] for row in order]
    retrieval = _median_time(partial(index.find, query))
    start = time.process_time()
    # One page at a time, as a CPU likes it; the library's own batches would be padded.
    layers = backbone.geometry.layers
    full = [backbone.encode([backbone.content(page)], exit_layer=layers)[0] for page in pages]
    backbone.targets([query], PrefixBatch(full), targets=("likelihood",))
    spent = {FULL: time.process_time() - start}
    few = pages[:_OFFLINE_PAGES]
    start = time.process_time()
    encoded = [backbone.encode([backbone.content(page)], exit_layer=exit_layer)[0] for page in few]
    encoding = time.process_time() - start
    offline = {}
    for keep in keeps:
        start = time.process_time()
        for prefix in encoded:
            pack(compress(prefix, Keep.parse(keep)))
        offline[keep] = (encoding + time.process_time() - start) / len(few)
        stored = [unpack(pack(compress(prefix.layers(0, exit_layer), Keep.parse(keep)))) for prefix in full]
        for state in STATES:
            spent[f"{keep}, {state}"] = _median_time(partial(_run_stored, backbone, query, stored, state))
    if cross_encoder is not None:
        start = time.process_time()
        cross_encoder.score(query, [page.text for page in pages])
        spent[CROSS] = time.process_time() - start
    return {RETRIEVAL: retrieval} | {name: value + retrieval for name, value in spent.items()}, offline


def _run_stored(backbone: Backbone, query: str, stored: Sequence[PackedPrefix], state: State) -> None:
    backbone.states([query], StoredPrefixes(stored), state=state)


def _median_time(run: Callable[[], object]) -> float:
    times = []
    for _ in range(_REPEATS):
        start = time.process_time()
        run()
        times.append(time.process_time() - start)
    return statistics.median(times)


if __name__ == "__main__":
    main()
