"""Rankings that a change of the house must not change: record them before, compare them after.

    python -m benchmarks.unchanged record FOLDER --documents DOCS --queries FILE --backbone MODEL
    python -m benchmarks.unchanged compare FOLDER

`record` indexes and calibrates through the command line and keeps the answers of the first queries in
FOLDER/rankings.json. `compare` does the same again with the code that is there now and names what differs.
"""

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

FIELDS = ("rank", "reference", "fused_score", "retriever_score", "readout_score", "retriever_rank")
"""What is compared of a page: the names `search --json` has."""
ASKED = 8
"""Queries whose rankings are kept."""


def main() -> None:
    """Record or compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("action", choices=("record", "compare"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--documents", type=Path)
    parser.add_argument("--queries", type=Path)
    parser.add_argument("--backbone")
    parser.add_argument("--retriever", default="")
    arguments = parser.parse_args()
    record = arguments.folder / "rankings.json"
    if arguments.action == "record":
        arguments.folder.mkdir(parents=True, exist_ok=True)
        settings = {
            name: str(getattr(arguments, name)) for name in ("documents", "queries", "backbone", "retriever")
        }
        record.write_text(json.dumps({**settings, "rankings": rank(arguments.folder, settings)}, indent=1))
        return
    before = json.loads(record.read_text())
    differences = list(compare(before.pop("rankings"), rank(arguments.folder, before)))
    print("\n".join(differences) or f"{record}: the same to the digit")
    sys.exit(bool(differences))


def rank(folder: Path, settings: dict[str, str]) -> list[Any]:
    """Index, calibrate and search in a new store."""
    store = folder / "store"
    shutil.rmtree(store, ignore_errors=True)
    index = ["index", settings["documents"], "--store", str(store), "--backbone", settings["backbone"]]
    ridgerank(*index, *(("--retriever", settings["retriever"]) if settings["retriever"] else ()))
    queries = [json.loads(line) for line in Path(settings["queries"]).read_text().splitlines()]
    unlabelled = folder / "unlabelled.jsonl"
    unlabelled.write_text("".join(f"{json.dumps(query)}\n" for query in queries[1::2][:40]))
    ridgerank("calibrate", "--store", str(store), "--queries", str(unlabelled))
    asked = [query["text"] for query in queries[::2][:ASKED]]
    return [json.loads(ridgerank("search", "--store", str(store), text, "--json")) for text in asked]


def ridgerank(*arguments: str) -> str:
    """What a command prints on stdout."""
    command = [sys.executable, "-m", "ridgerank", *arguments, "--quiet"]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def compare(before: list[Any], after: list[Any]) -> list[str]:
    """A line for everything that is not as it was."""
    lines = []
    for old, new in zip(before, after, strict=True):
        if old["weight"] != new["weight"]:
            lines.append(f"{old['query']}: weight {old['weight']} was, {new['weight']} is")
        for was, page in zip(old["pages"], new["pages"], strict=True):
            lines += [
                f"{old['query']}: rank {was['rank']}: {field} {was[field]} was, {page[field]} is"
                for field in FIELDS
                if was[field] != page[field]
            ]
    return lines


if __name__ == "__main__":
    main()
