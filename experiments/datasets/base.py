"""Corpora to evaluate on: documents on disk, queries, judgements; the drawn, the published, or a folder's."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ridgerank.errors import DatasetError
from ridgerank.records import Query
from ridgerank.trec import Qrels, read_qrels, read_queries


@dataclass(frozen=True, slots=True, eq=False)
class BenchmarkCorpus:
    """One corpus of a benchmark."""

    name: str
    documents: tuple[Path, ...]
    """Files and folders, as `index_documents` takes them."""
    queries: tuple[Query, ...]
    qrels: Qrels
    """Query id → reference of a page (`report.pdf#3`) → grade."""


@dataclass(frozen=True, slots=True, eq=False)
class Benchmark:
    """Corpora in their fixed cyclic order (§4): the weight of each is read on the next."""

    name: str
    corpora: tuple[BenchmarkCorpus, ...]
    note: str = ""
    """What a reader should know: a language selection, a query count that differs from the paper's."""


def keep_judged(queries: Iterable[Query], qrels: Qrels) -> tuple[tuple[Query, ...], Qrels, int]:
    """Queries with a page of positive grade, their judgements in the same order, and how many were left out.

    A query that no page answers scores 0 under every ranking, and its relevance cannot be standardized.
    """
    every = tuple(queries)
    kept = tuple(
        query for query in every if any(grade > 0 for grade in qrels.get(query.query_id, {}).values())
    )
    return kept, {query.query_id: dict(qrels[query.query_id]) for query in kept}, len(every) - len(kept)


DOCUMENTS, QUERIES, QRELS = "documents", "queries.jsonl", "qrels.trec"


def load_folder(folder: Path) -> Benchmark:
    """Every corpus in a folder: in the order of subfolders where there are some, else of the queries."""
    if (folder / QUERIES).exists():
        corpora = _read_several(folder)
    else:
        inside = sorted(path.parent for path in folder.glob(f"*/{QUERIES}"))
        if not inside:
            raise DatasetError(
                f"{folder}: neither {QUERIES} nor folders with one; wanted {DOCUMENTS}/, {QUERIES} and "
                f"{QRELS}, or a folder of such folders"
            )
        corpora = [read_corpus(each, name=each.name) for each in inside]
    notes = [
        f"{corpus.name}: {left_out} queries without an answer left out"
        for corpus, left_out in corpora
        if left_out
    ]
    return Benchmark(folder.name, tuple(corpus for corpus, _ in corpora), "; ".join(notes))


def read_corpus(folder: Path, *, name: str) -> tuple[BenchmarkCorpus, int]:
    """A folder as one corpus, and how many of its queries no page answers."""
    _require(folder)
    queries, qrels, left_out = keep_judged(read_queries(folder / QUERIES), read_qrels(folder / QRELS))
    if not queries:
        raise DatasetError(f"{folder}: no query has a page of positive grade in {QRELS}; nothing to measure")
    return BenchmarkCorpus(name, (folder / DOCUMENTS,), queries, qrels), left_out


def _read_several(folder: Path) -> list[tuple[BenchmarkCorpus, int]]:
    """One folder of queries; a corpus has the documents of the folder of its name, where there is one."""
    _require(folder)
    every_query, judgements = read_queries(folder / QUERIES), read_qrels(folder / QRELS)
    corpora: list[tuple[BenchmarkCorpus, int]] = []
    for name in dict.fromkeys(query.corpus for query in every_query):
        queries, qrels, left_out = keep_judged(
            (query for query in every_query if query.corpus == name), judgements
        )
        subfolder = folder / DOCUMENTS / name
        documents = subfolder if name and subfolder.is_dir() else folder / DOCUMENTS
        if queries:
            corpora.append((BenchmarkCorpus(name or folder.name, (documents,), queries, qrels), left_out))
    if not corpora:
        raise DatasetError(f"{folder}: no query has a page of positive grade in {QRELS}; nothing to measure")
    return corpora


def _require(folder: Path) -> None:
    missing = [name for name in (DOCUMENTS, QUERIES, QRELS) if not (folder / name).exists()]
    if missing:
        raise DatasetError(f"{folder}: no {missing[0]}; wanted {DOCUMENTS}/, {QUERIES} and {QRELS}")
