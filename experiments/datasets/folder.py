"""An own folder as a benchmark: documents/, queries.jsonl, qrels.trec.

Several corpora lie in folders of their own, or in one folder whose queries say which corpus they belong to.
"""

from pathlib import Path

from experiments.datasets.base import Benchmark, Corpus
from experiments.datasets.judged import judged
from ridgerank.errors import DatasetError
from ridgerank.runs.queries import read_queries
from ridgerank.runs.trec import read_qrels

DOCUMENTS, QUERIES, QRELS = "documents", "queries.jsonl", "qrels.trec"


def load_folder(folder: Path) -> Benchmark:
    """Every corpus in a folder, in the order of their names where they lie apart, else of their queries."""
    if (folder / QUERIES).exists():
        found = _several(folder)
    else:
        inside = sorted(path.parent for path in folder.glob(f"*/{QUERIES}"))
        if not inside:
            raise DatasetError(
                f"{folder}: neither {QUERIES} nor folders with one; wanted {DOCUMENTS}/, {QUERIES} and "
                f"{QRELS}, or a folder of such folders"
            )
        found = [read_corpus(each, name=each.name) for each in inside]
    notes = [
        f"{corpus.name}: {left_out} queries without an answer left out"
        for corpus, left_out in found
        if left_out
    ]
    return Benchmark(folder.name, tuple(corpus for corpus, _ in found), "; ".join(notes))


def read_corpus(folder: Path, *, name: str) -> tuple[Corpus, int]:
    """A folder as one corpus, and how many of its queries nothing answers."""
    _require(folder)
    queries, qrels, left_out = judged(read_queries(folder / QUERIES), read_qrels(folder / QRELS))
    if not queries:
        raise DatasetError(f"{folder}: no query has a page of positive grade in {QRELS}; nothing to measure")
    return Corpus(name, (folder / DOCUMENTS,), queries, qrels), left_out


def _several(folder: Path) -> list[tuple[Corpus, int]]:
    """One folder of queries; a corpus has the documents of the folder of its name, where there is one."""
    _require(folder)
    asked, judgements = read_queries(folder / QUERIES), read_qrels(folder / QRELS)
    corpora: list[tuple[Corpus, int]] = []
    for name in dict.fromkeys(query.corpus for query in asked):
        queries, qrels, left_out = judged((query for query in asked if query.corpus == name), judgements)
        own = folder / DOCUMENTS / name
        documents = own if name and own.is_dir() else folder / DOCUMENTS
        if queries:
            corpora.append((Corpus(name or folder.name, (documents,), queries, qrels), left_out))
    if not corpora:
        raise DatasetError(f"{folder}: no query has a page of positive grade in {QRELS}; nothing to measure")
    return corpora


def _require(folder: Path) -> None:
    missing = [name for name in (DOCUMENTS, QUERIES, QRELS) if not (folder / name).exists()]
    if missing:
        raise DatasetError(f"{folder}: no {missing[0]}; wanted {DOCUMENTS}/, {QUERIES} and {QRELS}")
