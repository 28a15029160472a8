"""A benchmark cut down to what a test can wait for."""

from dataclasses import replace
from pathlib import Path

from ridgerank.evaluation.datasets.base import Benchmark, Corpus

DOCUMENTS, QUERIES = 1, 6
"""Of a corpus: the documents kept, and of the queries they answer the first."""


def cut_down(benchmark: Benchmark, corpora: int) -> Benchmark:
    """The first corpora, of one document each, with queries that it answers."""
    return replace(benchmark, corpora=tuple(_cut(corpus) for corpus in benchmark.corpora[:corpora]))


def _cut(corpus: Corpus) -> Corpus:
    """The documents that answer most queries, and their judgements."""
    files = sorted(path for given in corpus.documents for path in _files(given))
    answered = {
        path: sum(_pages(corpus, query.query_id, {path.name}) != {} for query in corpus.queries)
        for path in files
    }
    kept = sorted(files, key=lambda path: (-answered[path], path))[:DOCUMENTS]
    names = {path.name for path in kept}
    judged = {query.query_id: _pages(corpus, query.query_id, names) for query in corpus.queries}
    queries = tuple(query for query in corpus.queries if judged[query.query_id])[:QUERIES]
    qrels = {query.query_id: judged[query.query_id] for query in queries}
    return replace(corpus, documents=tuple(kept), queries=queries, qrels=qrels)


def _files(given: Path) -> list[Path]:
    return [path for path in given.rglob("*") if path.is_file()] if given.is_dir() else [given]


def _pages(corpus: Corpus, query_id: str, names: set[str]) -> dict[str, int]:
    graded = corpus.qrels[query_id].items()
    return {page: grade for page, grade in graded if grade > 0 and page.rpartition("#")[0] in names}
