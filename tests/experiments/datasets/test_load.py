"""Benchmarks by name: drawn, published, or a folder of one's own."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from experiments.datasets.base import load_folder
from experiments.datasets.load import draw_missing_corpus, load_benchmark
from experiments.datasets.vidore_corpora import VIDORE2, VIDORE3
from miniature.corpora import PLANS
from ridgerank.documents.render import PageRef, list_pages
from ridgerank.errors import DatasetError
from tests.experiments.datasets.hub_copy import write_like_vidore2, write_like_vidore3


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


def test_a_drawn_corpus_is_judged_on_the_pages_that_were_drawn(tmp_path: Path) -> None:
    corpus = draw_missing_corpus(PLANS[9], tmp_path)
    drawn = {ref.reference for ref in list_pages(corpus.documents) if isinstance(ref, PageRef)}
    keep_judged = {page for grades in corpus.qrels.values() for page in grades}
    assert keep_judged < drawn
    assert len(corpus.queries) == sum(PLANS[9].questions.values())


def test_a_corpus_that_lies_there_whole_is_not_drawn_again(tmp_path: Path) -> None:
    plan = replace(PLANS[0], documents=3, questions={"topic": 2}, lookalikes=0)
    first = draw_missing_corpus(plan, tmp_path)
    paths = sorted((tmp_path / "documents").glob("*.pdf"))
    stamps = [path.stat().st_mtime_ns for path in paths]
    assert draw_missing_corpus(plan, tmp_path).qrels == first.qrels
    assert [path.stat().st_mtime_ns for path in paths] == stamps
    content = paths[0].read_bytes()
    paths[0].unlink()
    draw_missing_corpus(plan, tmp_path)
    assert paths[0].read_bytes() == content


def test_vidore_is_both_families(tmp_path: Path) -> None:
    for source in VIDORE2.corpora:
        write_like_vidore2(tmp_path / source.hub_dataset.name)
    for source in VIDORE3.corpora:
        write_like_vidore3(tmp_path / source.hub_dataset.name)
    second, third = load_benchmark("vidore", tmp_path / "work", languages=["french"], local=tmp_path)
    assert (second.name, third.name) == ("vidore2", "vidore3")
    assert len(third.corpora) == 8
    [only] = load_benchmark("vidore3", tmp_path / "work", corpora=["hr", "cs"], local=tmp_path)
    assert [corpus.name for corpus in only.corpora] == ["cs", "hr"]


def test_an_own_folder_is_named_with_its_path(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write(tmp_path / "own" / name, [{"query_id": "1", "text": "revenue"}], ["1 0 report.pdf#3 2"])
    [benchmark] = load_benchmark(f"folder:{tmp_path / 'own'}", tmp_path)
    assert [corpus.name for corpus in benchmark.corpora] == ["one", "two"]
    [some] = load_benchmark(f"folder:{tmp_path / 'own'}", tmp_path, corpora=["two"])
    assert [corpus.name for corpus in some.corpora] == ["two"]
    with pytest.raises(DatasetError, match="no corpus 'three' in own; there are: one, two"):
        load_benchmark(f"folder:{tmp_path / 'own'}", tmp_path, corpora=["three"])


@pytest.mark.parametrize("name", ["vidore1", "folder:", "Miniature"])
def test_an_unknown_benchmark_is_refused_with_the_known_ones(name: str, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"known: miniature, vidore, vidore2, vidore3, folder:PATH"):
        load_benchmark(name, tmp_path)
