"""Questions about real PDFs, their pages' text and BM25's candidates, for `real_documents`."""

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import bm25s
import numpy as np

from ridgerank.documents.ocr import OCR_PIXELS, Recognizer, has_little_text, recognize_pages
from ridgerank.documents.render import read_pages
from ridgerank.errors import DatasetError
from ridgerank.ragged import Floats, Ints
from ridgerank.records import Page
from ridgerank.trec import Qrels, read_qrels

CANDIDATES = 20
_SMALL_PIXELS = 4096
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Question:
    """A question about one document."""

    query_id: str
    text: str
    document: str
    kind: str


@dataclass(frozen=True, slots=True, eq=False)
class QuestionFolder:
    """Questions, their documents' pages and the judgements."""

    questions: list[Question]
    documents: dict[str, list[Page]]
    """Document → its pages in order."""
    qrels: Qrels
    without_text: set[str]
    """References of the pages without a text layer."""
    queries: Path
    """The file with the questions."""

    def evidence_without_text(self) -> dict[str, float]:
        """Share of the questions with an evidence page that has no text: in its layer, and as it is used."""
        texts = {page.reference: page.text for pages in self.documents.values() for page in pages}
        unreadable = {reference for reference in self.without_text if has_little_text(texts[reference])}
        evidence = [set(self.qrels[question.query_id]) for question in self.questions]
        return {
            "text layer": float(np.mean([bool(pages & self.without_text) for pages in evidence])),
            "in use": float(np.mean([bool(pages & unreadable) for pages in evidence])),
        }


def read_question_folder(
    documents: Path, queries: Path, qrels: Path, *, ocr_cache: Path | None
) -> QuestionFolder:
    """Read PDFs, questions and judgements; questions that cannot be answered are named and left out."""
    pages, without_text = page_texts(documents, ocr_cache=ocr_cache)
    judgements = read_qrels(qrels)
    return QuestionFolder(
        questions=answerable(read_questions(queries), pages, judgements),
        documents=pages,
        qrels=judgements,
        without_text=without_text,
        queries=queries,
    )


def paths_of(folder: Path) -> tuple[Path, Path, Path]:
    """Documents, questions and judgements of a folder laid out in the usual way."""
    return folder / "documents", folder / "queries.jsonl", folder / "qrels.trec"


def read_questions(path: Path) -> list[Question]:
    """Questions in turns over the kinds of document, so that the first N represent all kinds."""
    questions = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            questions.append(Question(row["query_id"], row["text"], row["document"], row["corpus"]))
        except (ValueError, KeyError, TypeError) as error:
            raise DatasetError(
                f"{path}, line {number}: found {line[:60]!r}; wanted JSON with query_id, text, document "
                "(a file's name) and corpus (its kind)"
            ) from error
    documents: dict[str, list[str]] = {}
    for question in questions:
        names = documents.setdefault(question.kind, [])
        if question.document not in names:
            names.append(question.document)
    turn = {name: (rank, kind) for kind, names in documents.items() for rank, name in enumerate(names)}
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
    without_text = {reference for reference, page in pages.items() if has_little_text(page.text)}
    if ocr_cache is not None:
        to_recognize = {pages[reference].page_id for reference in without_text}
        large = read_pages([folder], max_pixels=OCR_PIXELS, skip=lambda page_id: page_id not in to_recognize)
        logger.info("OCR of %d pages without a text layer, cached in %s", len(without_text), ocr_cache)
        for read in recognize_pages(large, Recognizer(cache=ocr_cache)):
            if isinstance(read, Page):
                pages[read.reference] = replace(pages[read.reference], text=read.text)
    documents: dict[str, list[Page]] = {}
    for reference, page in pages.items():
        documents.setdefault(reference.rpartition("#")[0], []).append(page)
    return documents, without_text


class DocumentIndex:
    """BM25 over the pages of one document."""

    def __init__(self, pages: Sequence[Page]) -> None:
        self._pages = len(pages)
        tokens = bm25s.tokenize([page.text or " " for page in pages], stopwords="en", show_progress=False)
        self._index: bm25s.BM25 | None = None
        if tokens.vocab:
            self._index = bm25s.BM25()
            self._index.index(tokens, show_progress=False)

    def score(self, query: str) -> Floats:
        """BM25 of every page; 0 where page or query has no word."""
        [words] = bm25s.tokenize([query], stopwords="en", show_progress=False, return_ids=False)
        if self._index is None or not words:
            return np.zeros(self._pages)
        scores: Floats = np.asarray(self._index.get_scores(words), dtype=np.float64)
        return scores

    def find(self, query: str) -> tuple[Ints, Floats]:
        """The best pages in order, and their scores."""
        scores = self.score(query)
        order = np.lexsort((np.arange(len(scores)), -scores))[:CANDIDATES]
        return order, scores[order]


def find_candidates(question: Question, pages: Sequence[Page]) -> tuple[list[Page], Floats]:
    """The best pages of the question's document by BM25, and their scores."""
    order, scores = DocumentIndex(pages).find(question.text)
    return [pages[row] for row in order], scores


def answerable(
    questions: Sequence[Question], documents: Mapping[str, list[Page]], qrels: Qrels
) -> list[Question]:
    """The questions whose document has pages and that were judged; the others are named."""
    missing = sorted({question.document for question in questions} - set(documents))
    for document in missing:
        logger.warning("%s: no pages of it were found; its questions are left out", document)
    unjudged = [question.query_id for question in questions if not qrels.get(question.query_id)]
    if unjudged:
        logger.warning("%d questions have no judgement, %s first; left out", len(unjudged), unjudged[0])
    kept = [
        question for question in questions if question.document in documents and qrels.get(question.query_id)
    ]
    kinds = {question.kind for question in kept}
    if len(kinds) < 2:
        raise DatasetError(
            f"judged questions with pages are of {len(kinds)} kinds (`corpus`); wanted two or more, "
            "since a kind is ranked with what the others teach"
        )
    return kept


def fingerprint(queries: Path, documents: Mapping[str, list[Page]], backbone: str) -> str:
    """The questions, the pages as they read and the model: whose checkpoints these are."""
    digest = hashlib.blake2b(queries.read_bytes(), digest_size=4)
    digest.update(str(Path(backbone).resolve()).encode())
    for pages in documents.values():
        for page in pages:
            digest.update(f"{page.page_id} {page.text}".encode())
    return digest.hexdigest()
