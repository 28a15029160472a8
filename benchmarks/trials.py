"""Three trials, as docs/trial.md shows them.

    python -m benchmarks.trials miniature|enciphered|FOLDER [--backbone MODEL] --out results/trials

`miniature` is a corpus of this repository, read by its own small model. `enciphered` is the documentation of
this repository with its letters exchanged: words still match words, and no model can read it. FOLDER has
documents, queries.jsonl and qrels.trec. What the command prints is kept as a text file; of a FOLDER without
questions and lines of its pages, which are not ours.
"""

import argparse
import random
import string
import subprocess
import sys
import tempfile
import textwrap
from itertools import islice
from pathlib import Path

from reportlab.pdfgen.canvas import Canvas

from miniature import weights
from miniature.corpora import find_plan, make_corpus
from miniature.draw import draw_corpus
from ridgerank.atomic import replace_text_file

LINES = 40


def main() -> None:
    """Make the documents, run the trial, keep what it prints."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("which", help="miniature, enciphered, or a folder")
    parser.add_argument("--backbone", default=str(weights("mini-qwen")))
    parser.add_argument("--store", help="of an earlier trial [default: a temporary one]")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        if options.which == "miniature":
            for _ in draw_corpus(make_corpus(find_plan("alder")), folder):
                pass
        elif options.which == "enciphered":
            draw_enciphered(folder / "documents")
        else:
            folder = Path(options.which)
        words = ["trial", folder / "documents", "--store", options.store or Path(scratch) / "pages"]
        words += ["--backbone", options.backbone, "--minutes", options.minutes, "--dtype", options.dtype]
        if (folder / "queries.jsonl").exists():
            words += ["--questions", folder / "queries.jsonl", "--qrels", folder / "qrels.trec"]
        command = [sys.executable, "-m", "ridgerank", "--quiet", *map(str, words)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(f"the trial failed with exit status {done.returncode}")
    ours = options.which in ("miniature", "enciphered")
    printed = done.stdout if ours else done.stdout[done.stdout.index("┏") :]
    name = options.which if ours else folder.name
    options.out.mkdir(parents=True, exist_ok=True)
    with replace_text_file(options.out / f"{name}.txt") as file:
        file.write(printed)
    print(printed)


def draw_enciphered(folder: Path) -> None:
    """The pages of docs/ as PDFs, every letter exchanged for another one."""
    letters = list(string.ascii_lowercase)
    random.Random(0).shuffle(letters)
    cipher = str.maketrans(string.ascii_letters, "".join(letters) + "".join(letters).upper())
    folder.mkdir(parents=True)
    for source in sorted(Path("docs").glob("*.md")):
        text = source.read_text(encoding="utf-8").translate(cipher)
        lines = iter([part for line in text.splitlines() for part in textwrap.wrap(line, 90)])
        canvas = Canvas(str(folder / f"{source.stem}.pdf"), invariant=1)
        while page := list(islice(lines, LINES)):
            for number, line in enumerate(page):
                canvas.drawString(50, 800 - 18 * number, line)
            canvas.showPage()
        canvas.save()


if __name__ == "__main__":
    main()
