"""A folder of questions and PDFs with all letters permuted: pages that no model can read, judged as before.

    python -m experiments.encipher ../data/slides enciphered

Words that were equal stay equal, so a retriever that matches words finds what it found.
"""

import argparse
import json
import shutil
import string
import textwrap
from pathlib import Path
from random import Random

import pypdfium2

from experiments.datasets.base import QUERIES
from experiments.ship_readouts import LINES, WIDTH, write_pages

LETTERS = string.ascii_lowercase
CIPHER = "".join(Random(0).sample(LETTERS, len(LETTERS)))
TABLE = str.maketrans(LETTERS + LETTERS.upper(), CIPHER + CIPHER.upper())


def main() -> None:
    """Write the folder anew, enciphered."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="documents, queries.jsonl, qrels.trec")
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    (options.out / "documents").mkdir(parents=True)
    shutil.copy(options.folder / "qrels.trec", options.out)
    rows = [json.loads(line) for line in (options.folder / QUERIES).read_text(encoding="utf-8").splitlines()]
    lines = [json.dumps({**row, "text": row["text"].translate(TABLE)}) for row in rows]
    (options.out / QUERIES).write_text("\n".join(lines) + "\n")
    for path in sorted((options.folder / "documents").glob("*.pdf")):
        pages = [page.get_textpage().get_text_range() for page in pypdfium2.PdfDocument(path)]
        write_pages([encipher(page) for page in pages], options.out / "documents" / path.name)


def encipher(text: str) -> list[str]:
    """The lines of a page, permuted and cut to fit a page."""
    lines = [part for line in text.splitlines() for part in textwrap.wrap(line, WIDTH)]
    return [line.translate(TABLE) for line in lines[:LINES]]


if __name__ == "__main__":
    main()
