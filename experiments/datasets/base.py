"""A corpus to evaluate on, whatever it came from: documents on disk, queries, judgements."""

from dataclasses import dataclass
from pathlib import Path

from ridgerank.records import Query
from ridgerank.trec import Qrels


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
