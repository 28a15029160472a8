"""A benchmark cut down for a quick run."""

from dataclasses import replace
from pathlib import Path

from experiments.datasets.base import Benchmark, BenchmarkCorpus

QUERIES = 5
"""Of a corpus: the first of the queries that the document kept answers."""


def cut_benchmark(benchmark: Benchmark, corpora: int) -> Benchmark:
    """The first corpora, of one document each, with queries that it answers."""
    return replace(benchmark, corpora=tuple(_cut_corpus(corpus) for corpus in benchmark.corpora[:corpora]))


def _cut_corpus(corpus: BenchmarkCorpus) -> BenchmarkCorpus:
    """The smallest document that answers enough queries, and its judgements."""
    files = sorted(path for location in corpus.documents for path in _files(location))
    judged = {path: _judged(corpus, path.name) for path in files}
    kept = min(files, key=lambda path: (-min(len(judged[path]), QUERIES), path.stat().st_size, path))
    queries = tuple(query for query in corpus.queries if query.query_id in judged[kept])[:QUERIES]
    qrels = {query.query_id: judged[kept][query.query_id] for query in queries}
    return replace(corpus, documents=(kept,), queries=queries, qrels=qrels)


def _files(location: Path) -> list[Path]:
    return [path for path in location.rglob("*") if path.is_file()] if location.is_dir() else [location]


def _judged(corpus: BenchmarkCorpus, name: str) -> dict[str, dict[str, int]]:
    """Query id → pages of one document that answer it → grade."""
    answered = {
        query_id: {
            page: grade for page, grade in grades.items() if grade > 0 and page.rpartition("#")[0] == name
        }
        for query_id, grades in corpus.qrels.items()
    }
    return {query_id: pages for query_id, pages in answered.items() if pages}
