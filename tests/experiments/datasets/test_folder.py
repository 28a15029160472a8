import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from experiments.datasets.base import load_folder
from ridgerank.errors import DatasetError


def write(folder: Path, queries: Sequence[Mapping[str, str]], judgements: Sequence[str]) -> Path:
    (folder / "documents").mkdir(parents=True)
    (folder / "queries.jsonl").write_text("".join(json.dumps(query) + "\n" for query in queries))
    (folder / "qrels.trec").write_text("".join(line + "\n" for line in judgements))
    return folder


def test_a_folder_is_one_corpus(tmp_path: Path) -> None:
    folder = write(tmp_path / "own", [{"query_id": "1", "text": "revenue"}], ["1 0 report.pdf#3 2"])
    benchmark = load_folder(folder)
    [corpus] = benchmark.corpora
    assert (benchmark.name, corpus.name, benchmark.note) == ("own", "own", "")
    assert corpus.documents == (folder / "documents",)
    assert corpus.qrels == {"1": {"report.pdf#3": 2}}


def test_queries_say_which_corpus_they_belong_to(tmp_path: Path) -> None:
    queries = [
        {"query_id": "1", "text": "one", "corpus": "laws"},
        {"query_id": "2", "text": "two", "corpus": "slides"},
        {"query_id": "3", "text": "three", "corpus": "laws"},
        {"query_id": "4", "text": "four", "corpus": "slides"},
    ]
    folder = write(tmp_path / "own", queries, ["1 0 a.pdf#1 1", "2 0 b.pdf#1 1", "3 0 a.pdf#2 2"])
    (folder / "documents/slides").mkdir()
    benchmark = load_folder(folder)
    laws, slides = benchmark.corpora
    assert [query.query_id for query in laws.queries] == ["1", "3"]
    assert laws.documents == (folder / "documents",)
    assert slides.documents == (folder / "documents/slides",)
    assert list(slides.qrels) == ["2"]
    assert benchmark.note == "slides: 1 queries without an answer left out"


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"neither queries\.jsonl nor folders with one"):
        load_folder(tmp_path)
    folder = write(tmp_path / "own", [{"query_id": "1", "text": "revenue"}], ["1 0 report.pdf#3 0"])
    with pytest.raises(DatasetError, match="no query has a page of positive grade"):
        load_folder(folder)
    (folder / "qrels.trec").unlink()
    with pytest.raises(DatasetError, match=r"no qrels\.trec"):
        load_folder(folder)
