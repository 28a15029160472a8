"""A small calibrated store: real pages, a random readout, a retriever that scores by a rule one can check."""

import hashlib
import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from reportlab.pdfgen.canvas import Canvas

from ridgerank.backbones.base import Backbone
from ridgerank.calibration.artifact import Calibration, Diagnostics
from ridgerank.fusion.weight import user_estimate
from ridgerank.indexing.index import index_documents
from ridgerank.lineage import Lineage
from ridgerank.ragged import Floats
from ridgerank.readout import Readout, TargetReadout
from ridgerank.records import Candidate
from ridgerank.retrievers.base import Retriever, top_candidates
from tests.conftest import write_pdf


class ByDigest(Retriever):
    """Scores every page by a digest of query and page id: arbitrary, and the same every time."""

    name = "by-digest"

    def __init__(self, page_ids: Sequence[str]) -> None:
        self._page_ids = list(page_ids)

    def search_many(self, queries: Sequence[str], k: int) -> list[list[Candidate]]:
        return [top_candidates(self._page_ids, self.score(query, self._page_ids), k) for query in queries]

    def score(self, query: str, page_ids: Sequence[str]) -> Floats:
        digests = (hashlib.blake2b(f"{query} {page_id}".encode()).digest() for page_id in page_ids)
        return np.array([int.from_bytes(digest[:4], "big") / 2**32 for digest in digests])


def random_calibration(lineage: Lineage, width: int, *, weight: float = 0.6, seed: int = 0) -> Calibration:
    """A readout nobody fitted, with a weight somebody gave."""
    vector = np.random.default_rng(seed).normal(size=width)
    estimate = user_estimate(weight)
    unknown = float("nan")
    diagnostics = Diagnostics(
        queries_from="nowhere",
        queries=0,
        lists=0,
        candidates=20,
        pairs=0,
        penalties=(0.1, 1.0),
        errors={"part 1": (0.5, 0.4)},
        chosen={"part 1": 1.0},
        penalty_at_edge=True,
        agreement=unknown,
        agreement_interval=(0.0, 1.0),
    )
    readout = Readout(vector, 1.0, lineage)
    return Calibration(readout, estimate, ByDigest.name, ByDigest.name, ByDigest.name, diagnostics)


def random_target_readout(width: int) -> TargetReadout:
    """Predicted margins that nobody fitted."""
    vector = np.random.default_rng(1).normal(size=width) / np.sqrt(width)
    return TargetReadout(vector, intercept=0.25, penalty=10.0)


def index_pages(folder: Path, backbone: Backbone, *, pages: int) -> str:
    """Documents of so many pages in all, in a store."""
    for number, start in enumerate(range(0, pages, 6)):
        write_pdf(folder / f"in/{number}.pdf", pages=min(6, pages - start), seed=number)
    uri = str(folder / "store")
    index_documents([folder / "in"], uri, backbone, preset="paper", processes=0)
    return uri


class WordOverlap(Retriever):
    """Scores a page by the share of the query's words it holds, long pages a little less."""

    name = "word-overlap"

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._words = {page_id: set(text.casefold().split()) for page_id, text in texts.items()}

    def search_many(self, queries: Sequence[str], k: int) -> list[list[Candidate]]:
        page_ids = list(self._words)
        return [top_candidates(page_ids, self.score(query, page_ids), k) for query in queries]

    def score(self, query: str, page_ids: Sequence[str]) -> Floats:
        asked = query.casefold().split()
        found = [self._words[page_id] for page_id in page_ids]
        return np.array([sum(w in words for w in asked) / len(asked) - len(words) / 1e3 for words in found])


_SUBJECTS = [
    *["margin", "revenue", "growth", "cost", "energy", "water", "staff", "safety", "audit", "risk"],
    *["patent", "market", "client", "price", "export", "import", "profit", "debt", "equity", "rate"],
]
_VERBS = ["rose", "fell", "doubled", "stalled", "recovered", "shrank", "improved", "worsened"]
_PLACES = ["Norway", "Chile", "Ghana", "Japan", "Spain", "Canada", "Kenya", "Peru", "India", "Poland"]


def write_report(path: Path, *, pages: int, seed: int) -> Path:
    """A PDF with a text layer: a title, sentences, a caption and a table header on every page."""
    generator = random.Random(seed)
    canvas = Canvas(str(path), (300, 400), invariant=1)
    for number in range(pages):
        pick = generator.choice
        subject, place = pick(_SUBJECTS), pick(_PLACES)
        lines = [f"Report {seed}.{number} {subject} in {place}"]
        lines += [
            f"The {pick(_SUBJECTS)} of {pick(_PLACES)} {pick(_VERBS)} while {pick(_SUBJECTS)} {pick(_VERBS)}."
            for _ in range(generator.randint(3, 9))
        ]
        lines += [f"Figure {number}: {pick(_SUBJECTS)} and {pick(_SUBJECTS)} of {pick(_PLACES)}"]
        for height, line in enumerate(lines):
            canvas.drawString(20, 370 - 22 * height, line)
        for place_x in range(5):
            canvas.rect(20 + 30 * place_x, 20, 20, generator.randint(10, 90), fill=1)
        canvas.showPage()
    canvas.save()
    return path


def write_reports(folder: Path, *, pages: int) -> Path:
    """Reports of so many pages in all."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, start in enumerate(range(0, pages, 10)):
        write_report(folder / f"report-{number}.pdf", pages=min(10, pages - start), seed=number)
    return folder
