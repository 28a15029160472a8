import json
import os
import subprocess
import sys
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from miniature import MiniatureError
from miniature.corpora import Corpus
from miniature.draw import draw_corpus, draw_document
from miniature.training.designs import render
from miniature.training.training_pages import training_pages, word_grid
from miniature.world import (
    CELL_PIXELS,
    HEIGHT_PIXELS,
    WIDTH_PIXELS,
    PlannedPage,
)
from ridgerank.documents.pdf import PdfReader, count_pages
from ridgerank.documents.sources import SourceFile, find_sources
from ridgerank.trec import read_qrels

MAX_PIXELS = WIDTH_PIXELS * HEIGHT_PIXELS


@pytest.fixture(scope="module")
def pages() -> list[PlannedPage]:
    return list(islice(training_pages(7), 80))


def test_a_drawn_corpus_holds_its_documents_queries_and_grades(
    corpora: dict[str, Corpus], tmp_path: Path
) -> None:
    corpus = corpora["elder"]
    list(draw_corpus(corpus, tmp_path))
    for name, pages in corpus.documents.items():
        assert count_pages(tmp_path / "documents" / name) == len(pages)
    sources = list(find_sources([tmp_path / "documents"]))
    assert sorted(each.name for each in sources if isinstance(each, SourceFile)) == sorted(corpus.documents)
    rows = [json.loads(line) for line in (tmp_path / "queries.jsonl").read_text().splitlines()]
    assert [(row["text"], row["kind"]) for row in rows] == [(q.text, q.kind) for q in corpus.questions]
    qrels = read_qrels(tmp_path / "qrels.trec")
    assert [qrels[row["query_id"]] for row in rows] == list(corpus.grades)
    assert {page for grades in qrels.values() for page in grades} <= set(corpus.pages())


def test_an_interrupted_drawing_leaves_whole_files_and_is_completed_by_the_next(
    corpora: dict[str, Corpus], tmp_path: Path
) -> None:
    corpus = corpora["elder"]
    started = draw_corpus(corpus, tmp_path)
    path = next(started)
    started.close()
    assert [file.name for file in (tmp_path / "documents").iterdir()] == [path.name]
    assert count_pages(path) == len(corpus.documents[path.name])
    list(draw_corpus(corpus, tmp_path))
    assert {file.name for file in (tmp_path / "documents").iterdir()} == set(corpus.documents)


def test_a_folder_with_documents_of_another_corpus_is_refused(
    corpora: dict[str, Corpus], tmp_path: Path
) -> None:
    next(draw_corpus(corpora["elder"], tmp_path))
    with pytest.raises(MiniatureError, match="not of the corpus fir; use an empty folder"):
        next(draw_corpus(corpora["fir"], tmp_path))


def test_the_text_layer_has_exactly_the_placed_words(pages: list[PlannedPage], tmp_path: Path) -> None:
    path = tmp_path / "pages.pdf"
    path.write_bytes(draw_document(pages))
    with PdfReader() as reader:
        for number, page in enumerate(pages, start=1):
            _, text = reader.read(path, number, max_pixels=MAX_PIXELS)
            words = [word for word in text.split() if word != "|"]  # between the cells of a table
            assert sorted(words) == sorted(placed.word for placed in page.words)


def test_a_page_rendered_for_training_is_the_page_of_the_pdf_file(
    pages: list[PlannedPage], tmp_path: Path
) -> None:
    path = tmp_path / "pages.pdf"
    path.write_bytes(draw_document(pages[:4]))
    with PdfReader() as reader:
        for number, image in enumerate(render(pages[:4]), start=1):
            assert image.size == (WIDTH_PIXELS, HEIGHT_PIXELS)
            assert image.mode == "RGB"
            assert image.tobytes() == reader.read(path, number, max_pixels=MAX_PIXELS)[0].tobytes()


def test_the_ink_of_words_lies_inside_the_cells_they_claim_and_in_none_of_them_is_it_missing(
    pages: list[PlannedPage],
) -> None:
    words_only = [replace(page, marks=(), style=replace(page.style, speckles=0)) for page in pages]
    for page, image in zip(words_only, render(words_only), strict=True):
        pixels = np.asarray(image, dtype=np.int64)
        ink = np.abs(pixels - pixels[0, 0]).max(axis=2) > 64  # fainter is the edge of an anti-aliased letter
        claimed = np.kron(word_grid(page) > 0, np.ones((CELL_PIXELS, CELL_PIXELS), dtype=bool))
        assert not (ink & ~claimed).any()
        for placed in page.words:
            top, left = placed.row * CELL_PIXELS, placed.column * CELL_PIXELS
            cell = ink[top : top + CELL_PIXELS, left : left + placed.width_cells * CELL_PIXELS]
            assert cell.mean() > 0.01, placed


RUN = [sys.executable, "-m", "miniature", "draw"]


def draw(*arguments: object, hash_seed: str = "0") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    return subprocess.run(
        [*RUN, *map(str, arguments)], capture_output=True, text=True, check=False, env=environment
    )


def test_a_corpus_is_drawn_by_its_number_into_the_folder_itself(tmp_path: Path) -> None:
    done = draw("--out", tmp_path, "--corpus", 5)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert "100 queries" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["documents", "qrels.trec", "queries.jsonl"]


def test_an_unknown_corpus_is_one_line_with_the_names_there_are(tmp_path: Path) -> None:
    done = draw("--out", tmp_path, "--corpus", "oak")
    assert done.returncode == 1
    assert done.stderr.startswith("error: no corpus 'oak'; there are: 1 alder, 2 birch")
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_another_process_draws_the_same_bytes(tmp_path: Path) -> None:
    drawn = []
    for hash_seed in ("1", "2"):
        folder = tmp_path / hash_seed
        assert draw("--out", folder, "--corpus", "juniper", hash_seed=hash_seed).returncode == 0
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        drawn.append({path.relative_to(folder): path.read_bytes() for path in files})
    assert drawn[0] == drawn[1]
