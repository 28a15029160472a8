r"""RidgeRank on real PDFs with a small language model over page text, question by question.

    python -m benchmarks.real_documents --documents DIR --queries queries.jsonl --qrels qrels.trec \
        --backbone DIR --checkpoints DIR [--cross-encoder DIR] [--ocr] [--out results/real.json]

A question is about its own document: BM25 picks up to 20 of its pages, the others reorder them. The teacher
reads the candidates to full depth; readouts and weights come from the other kinds of document, as calibration
makes them (`real_documents_report.py`). Every question is written to `--checkpoints` when it is done: run the
same command again to go on. What is there by the end is evaluated, or, with `--evaluate`, at once.
"""

import argparse
import json
import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import bm25s
import numpy as np
import torch

from benchmarks.onnx_cross_encoder import OnnxCrossEncoder
from benchmarks.real_documents_report import report
from benchmarks.real_documents_speed import measure
from benchmarks.report import publish
from ridgerank.backbones.base import Backbone
from ridgerank.backbones.dense import DensePrefixes
from ridgerank.backbones.load import load_backbone
from ridgerank.backbones.prefix import Prefix
from ridgerank.documents.ocr import OCR_PIXELS, Recognizer, lacks_text, recognize
from ridgerank.documents.pages import read_pages
from ridgerank.files import replaced, replaced_text
from ridgerank.lists import Floats
from ridgerank.records import Page
from ridgerank.runs.trec import read_qrels
from ridgerank.store.batch import StoredPrefixes
from ridgerank.store.compress import compress
from ridgerank.store.keep import Keep
from ridgerank.store.layout import PackedPrefix, block_of, pack, unpack
from ridgerank.store.origin import default_exit_layer

CANDIDATES = 20
_SMALL_PIXELS = 4096
_LATENCY = "latency.json"
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Question:
    """A question about one document."""

    query_id: str
    text: str
    document: str
    kind: str


KEEPS = ("stride 1/3", "stride 1")
"""How stored pages are kept, the first as the paper does."""


def read_questions(path: Path) -> list[Question]:
    """Questions in turns over the kinds of document, so that a part of them is a fair part."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    questions = [Question(row["query_id"], row["text"], row["document"], row["corpus"]) for row in rows]
    documents: dict[str, list[str]] = {}
    for question in questions:
        names = documents.setdefault(question.kind, [])
        if question.document not in names:
            names.append(question.document)
    turn = {name: (place, kind) for kind, names in documents.items() for place, name in enumerate(names)}
    return sorted(questions, key=lambda question: (*turn[question.document], question.document))


def page_texts(folder: Path, *, ocr_cache: Path | None) -> tuple[dict[str, list[Page]], set[str]]:
    """Pages of each document, in order, and the references of those without a text layer.

    Drawn small, since only their text counts; those to be read by OCR are drawn again, large.
    """
    pages: dict[str, Page] = {}
    for read in read_pages([folder], max_pixels=_SMALL_PIXELS):
        if isinstance(read, Page):
            pages[read.reference] = read
        else:
            logger.warning("%s", read)
    bare = {reference for reference, page in pages.items() if lacks_text(page.text)}
    if ocr_cache is not None:
        wanted = {pages[reference].page_id for reference in bare}
        large = read_pages([folder], max_pixels=OCR_PIXELS, skip=lambda page_id: page_id not in wanted)
        for read in recognize(large, Recognizer(cache=ocr_cache, threads=1)):
            if isinstance(read, Page):
                pages[read.reference] = replace(pages[read.reference], text=read.text)
    documents: dict[str, list[Page]] = {}
    for reference, page in pages.items():
        documents.setdefault(reference.rpartition("#")[0], []).append(page)
    return documents, bare


def bm25(query: str, pages: Sequence[Page]) -> Floats:
    """BM25 of every page of a document for one query."""
    tokens = bm25s.tokenize([page.text or " " for page in pages], stopwords="en", show_progress=False)
    if not tokens.vocab:
        return np.zeros(len(pages))
    index = bm25s.BM25()
    index.index(tokens, show_progress=False)
    [asked] = bm25s.tokenize([query], stopwords="en", show_progress=False, return_ids=False)
    scores: Floats = np.asarray(index.get_scores(asked), dtype=np.float64) if asked else np.zeros(len(pages))
    return scores


def find_candidates(question: Question, pages: Sequence[Page]) -> tuple[list[Page], Floats]:
    """The best pages of the question's document by BM25, and their scores."""
    scores = bm25(question.text, pages)
    order = np.lexsort((np.arange(len(pages)), -scores))[:CANDIDATES]
    return [pages[place] for place in order], scores[order]


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
    margins, likelihoods = reader.backbone.targets_many([question.text], DensePrefixes(full))
    return {
        "references": np.array([page.reference for page in candidates]),
        "bm25": scores,
        "margin": margins.cpu().numpy(),
        "likelihood": likelihoods.cpu().numpy(),
    }


def ask_stored(
    question: Question, pages: Sequence[Page], reader: Reader, keep: Keep
) -> dict[str, np.ndarray]:
    """States over the same candidates as they would be stored, and their bytes."""
    candidates, _ = find_candidates(question, pages)
    stored = reader.stored(candidates, keep)
    states = reader.backbone.states_each(question.text, StoredPrefixes.of(stored, join_layer=0))
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
    with replaced(path) as scratch, scratch.open("wb") as file:
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
    """Time questions of different documents, kinds in turns, and keep what was found."""
    first = {question.document: question for question in reversed(questions)}
    chosen = [question for question in questions if first[question.document] is question][: options.latency]
    measured = measure(
        reader.backbone,
        [(question.text, find_candidates(question, pages[question.document])[0]) for question in chosen],
        exit_layer=reader.exit_layer,
        keeps=options.keeps,
        cross_encoder=OnnxCrossEncoder(options.cross_encoder) if options.cross_encoder else None,
    )
    with replaced_text(folder / _LATENCY) as file:
        file.write(json.dumps(measured))


def main() -> None:
    """Ask, evaluate, print a table, then one line of JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--documents", type=Path, required=True)
    parser.add_argument("--queries", type=Path, required=True)
    parser.add_argument("--qrels", type=Path, required=True)
    parser.add_argument("--backbone", required=True)
    parser.add_argument("--checkpoints", type=Path, required=True, help="a folder to go on from")
    parser.add_argument("--retriever", choices=["bm25"], default="bm25")
    parser.add_argument("--page-text", default="head 512", help="how much of a page is read")
    parser.add_argument("--ocr", action="store_true", help="read pages that carry no text layer")
    parser.add_argument("--cross-encoder", type=Path, help="folder of a trained ONNX cross encoder")
    parser.add_argument("--questions", type=int, help="only so many, in turns over the kinds")
    parser.add_argument("--evaluate", action="store_true", help="evaluate what is there, ask nothing")
    parser.add_argument("--keeps", nargs="+", default=list(KEEPS), help="how stored pages are kept")
    parser.add_argument("--latency", type=int, default=0, metavar="N", help="time N questions, too")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, help="also write the JSON here")
    options = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    torch.set_num_threads(options.threads)

    questions = read_questions(options.queries)[: options.questions]
    folder = options.checkpoints / f"{Path(options.backbone).stem}-{options.page_text.replace(' ', '-')}"
    cache = options.checkpoints / "ocr" if options.ocr else None
    folder = folder.with_name(folder.name + ("-ocr" if options.ocr else ""))
    pages, bare = page_texts(options.documents, ocr_cache=cache)
    keeps = [Keep.parse(keep) for keep in options.keeps]
    if not options.evaluate:
        backbone = load_backbone(options.backbone, page_text=options.page_text)
        reader = Reader(backbone, exit_layer=default_exit_layer(backbone.geometry.layers))
        start = time.perf_counter()
        for number, question in enumerate(run_questions(questions, pages, reader, folder, keeps), start=1):
            print(
                f"{number}/{len(questions)} {question.query_id} {time.perf_counter() - start:.0f} s",
                flush=True,
            )
        if options.latency:
            _time(questions, pages, reader, folder, options)
    if options.cross_encoder:
        cross_scores(questions, pages, folder, options.cross_encoder)
    qrels = read_qrels(options.qrels)
    asked = [question for question in questions if (folder / f"{question.query_id}.npz").exists()]
    texts = {page.reference: page.text for document in pages.values() for page in document}
    unread = {reference for reference in bare if lacks_text(texts[reference])}
    evidence = [set(qrels[question.query_id]) for question in questions if question.query_id in qrels]
    found = report(
        {question.query_id: question.kind for question in asked},
        qrels,
        folder,
        keeps=options.keeps,
        evidence_without_text={
            "text layer": float(np.mean([bool(pages & bare) for pages in evidence])),
            "in use": float(np.mean([bool(pages & unread) for pages in evidence])),
        },
    )
    if (folder / _LATENCY).exists():
        found["latency"] = json.loads((folder / _LATENCY).read_text(encoding="utf-8"))
    found |= {"backbone": Path(options.backbone).stem, "page_text": options.page_text, "ocr": options.ocr}
    publish(found, options.out)


if __name__ == "__main__":
    main()
