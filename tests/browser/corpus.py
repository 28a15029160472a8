"""A few documents of the miniature, drawn, indexed and calibrated by the commands people type."""

import json
from pathlib import Path

from benchmarks import ridgerank
from miniature import weights
from miniature.corpora import find_plan, make_corpus
from miniature.draw import draw_corpus
from ridgerank.trec import read_qrels

CORPUS = "alder"
DOCUMENTS = 2
QUERIES = 24


def make_store(folder: Path) -> tuple[Path, list[str]]:
    """A calibrated store of some thirty pages, and the queries it was calibrated with."""
    for _ in draw_corpus(make_corpus(find_plan(CORPUS)), folder):
        pass
    documents = sorted((folder / "documents").glob("*.pdf"))[:DOCUMENTS]
    names = tuple(f"{document.name}#" for document in documents)
    judged = read_qrels(folder / "qrels.trec")
    lines = [json.loads(line) for line in (folder / "queries.jsonl").read_text().splitlines()]
    selected = [line for line in lines if any(page.startswith(names) for page in judged[line["query_id"]])][
        :QUERIES
    ]
    queries = folder / "selected.jsonl"
    queries.write_text(
        "".join(json.dumps({key: line[key] for key in ("query_id", "text")}) + "\n" for line in selected)
    )
    years = [{"document": document.name, "year": 2019 + number} for number, document in enumerate(documents)]
    (folder / "documents" / "metadata.jsonl").write_text("".join(f"{json.dumps(year)}\n" for year in years))
    store = folder / "pages"
    models = ["--backbone", weights("mini-qwen"), "--retriever", weights("mini-colqwen")]
    ridgerank("index", *documents, "--store", store, *models, "--preset", "paper")
    ridgerank("calibrate", "--store", store, "--queries", queries)
    return store, [line["text"] for line in selected]
