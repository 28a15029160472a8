"""Planned pages become PDF files, and a corpus becomes a folder as people keep theirs.

    documents/*.pdf    queries.jsonl    qrels.trec

The same corpus gives the same bytes: no dates, and no compression, whose output differs between builds of
zlib. Files appear whole or not at all, the judgements last; drawing again completes what was interrupted.
"""

import io
import json
from collections.abc import Generator, Sequence
from itertools import groupby
from pathlib import Path
from random import Random

from reportlab.lib.colors import Color
from reportlab.pdfgen.canvas import Canvas

from miniature import MiniatureError
from miniature.corpora import Corpus
from miniature.world import CELL_PIXELS, HEIGHT_PIXELS, WIDTH_PIXELS, Face, Mark, Palette, PlannedPage, Role
from ridgerank.atomic import replace_file, replace_text_file
from ridgerank.trec import write_qrels

BASELINE = 20
"""Pixels from the top of a cell to the line its letters stand on."""
SPECK = 0xB8B8B8


def draw_corpus(corpus: Corpus, folder: Path) -> Generator[Path, None, None]:
    """Write a corpus into its folder, yielding each file when it is there."""
    documents = folder / "documents"
    _refuse_other_documents(documents, corpus)
    for name, pages in corpus.documents.items():
        path = documents / name
        with replace_file(path) as scratch:
            scratch.write_bytes(draw_document(pages))
        yield path
    queries = folder / "queries.jsonl"
    with replace_text_file(queries) as file:
        for number, question in enumerate(corpus.questions):
            row = {"query_id": corpus.query_id(number), "text": question.text, "kind": question.kind}
            file.write(json.dumps(row) + "\n")
    yield queries
    qrels = folder / "qrels.trec"
    with replace_text_file(qrels) as file:
        write_qrels(corpus.qrels(), file)
    yield qrels


def draw_document(pages: Sequence[PlannedPage]) -> bytes:
    """Pages as one PDF, a point a pixel."""
    file = io.BytesIO()
    canvas = Canvas(file, (WIDTH_PIXELS, HEIGHT_PIXELS), invariant=1, pageCompression=0)
    for page in pages:
        _draw_page(canvas, page)
        canvas.showPage()
    canvas.save()
    return file.getvalue()


def _refuse_other_documents(documents: Path, corpus: Corpus) -> None:
    """Refuse a folder with other documents: they would be ranked with the corpus, and have no judgements."""
    others = sorted(path.name for path in documents.glob("*.pdf") if path.name not in corpus.documents)
    if others:
        raise MiniatureError(
            f"{documents}: holds {others[0]}, which is not of the corpus {corpus.name}; use an empty folder"
        )


def _draw_page(canvas: Canvas, page: PlannedPage) -> None:
    style = page.style
    canvas.setFillColor(_colour(style.palette.paper))
    canvas.rect(0, 0, WIDTH_PIXELS, HEIGHT_PIXELS, stroke=0, fill=1)
    canvas.saveState()
    canvas.translate(style.shift[0], -style.shift[1])
    for mark in page.marks:
        _draw_mark(canvas, mark, style.palette)
    for role, words in groupby(page.words, key=lambda placed: placed.role):
        canvas.setFont(*font(style.face, role))
        canvas.setFillColor(_colour(_word_colour(style.palette, role)))
        for placed in words:
            x, y = placed.column * CELL_PIXELS, placed.row * CELL_PIXELS + BASELINE
            canvas.drawString(x, HEIGHT_PIXELS - y, placed.word)
    canvas.restoreState()
    _draw_speckles(canvas, page)


def _draw_mark(canvas: Canvas, mark: Mark, palette: Palette) -> None:
    colour = _colour(getattr(palette, mark.ink))
    canvas.setFillColor(colour)
    canvas.setStrokeColor(colour)
    if mark.shape == "box":
        left, top, right, bottom = mark.points
        canvas.rect(left, HEIGHT_PIXELS - bottom, right - left, bottom - top, stroke=0, fill=1)
    elif mark.shape == "dot":
        x, y, radius = mark.points
        canvas.circle(x, HEIGHT_PIXELS - y, radius, stroke=0, fill=1)
    else:
        canvas.setLineWidth(1 if mark.ink in ("rule", "tint") else 2)
        path = canvas.beginPath()
        for number in range(0, len(mark.points), 2):
            x, y = mark.points[number], HEIGHT_PIXELS - mark.points[number + 1]
            path.lineTo(x, y) if number else path.moveTo(x, y)
        canvas.drawPath(path)


def _draw_speckles(canvas: Canvas, page: PlannedPage) -> None:
    generator = Random(page.style.speckle_seed)
    path = canvas.beginPath()
    for _ in range(page.style.speckles):
        x, y = generator.uniform(0, WIDTH_PIXELS), generator.uniform(0, HEIGHT_PIXELS)
        path.rect(x, y, generator.uniform(0.5, 1.6), generator.uniform(0.5, 1.6))
    canvas.setFillColor(_colour(SPECK))
    canvas.drawPath(path, stroke=0, fill=1)


def font(face: Face, role: Role) -> tuple[str, int]:
    """The typeface and size of a role."""
    match role:
        case "title":
            return face.bold, face.title_size
        case "heading" | "name":
            return face.bold, face.size
        case "note":
            return face.oblique, face.size
        case "body":
            return face.regular, face.size


def _word_colour(palette: Palette, role: Role) -> int:
    return palette.title if role in ("title", "heading") else palette.text


def _colour(rgb: int) -> Color:
    return Color((rgb >> 16) / 255, (rgb >> 8 & 255) / 255, (rgb & 255) / 255)
