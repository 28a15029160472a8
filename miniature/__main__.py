"""`python -m miniature draw`: the small world that is drawn here, and needs no download.

Writes documents/*.pdf, queries.jsonl and qrels.trec: one corpus into the folder itself, all twelve each into
a folder of its name. The same corpus is the same to the byte; drawing again completes an interrupted run.
"""

import argparse
import sys
from pathlib import Path

from miniature import MiniatureError
from miniature.corpora import PLANS, find_plan, make_corpus
from miniature.draw import draw_corpus
from ridgerank.cli._console import echo


def main() -> None:
    """Draw visual documents as PDF files, with queries and graded relevance."""
    parser = argparse.ArgumentParser(
        prog="python -m miniature", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("command", choices=["draw"])
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    parser.add_argument("--corpus", metavar="NAME|N", help="one corpus; otherwise all twelve")
    options = parser.parse_args()
    try:
        named = [(find_plan(options.corpus), options.out)] if options.corpus else []
    except MiniatureError as error:
        sys.exit(f"error: {error}")
    for plan, folder in named or [(plan, options.out / plan.name) for plan in PLANS]:
        drawn = make_corpus(plan)
        for _ in draw_corpus(drawn, folder):
            pass
        counts = (
            f"{len(drawn.documents)} documents, {len(drawn.pages())} pages, {len(drawn.questions)} queries"
        )
        echo(f"{folder}: {counts}")


if __name__ == "__main__":
    main()
