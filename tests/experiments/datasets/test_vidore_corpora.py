from pathlib import Path

import pytest

from experiments.datasets.vidore_corpora import (
    VIDORE2,
    DatasetTables,
    HubDataset,
    load_vidore,
    read_judged_queries,
    write_pages,
)
from ridgerank.errors import DatasetError
from tests.experiments.datasets.hub_copy import (
    corpus_rows,
    write_like_vidore2,
    write_like_vidore3,
    write_table,
)

PUBLISHED = HubDataset("vidore/small", "0" * 40)
"""The real queries and judgements, where a copy lies beside the project."""


@pytest.fixture
def like_vidore2(tmp_path: Path) -> DatasetTables:
    write_like_vidore2(tmp_path / "hub/small")
    return DatasetTables(PUBLISHED, tmp_path / "hub")


@pytest.fixture
def like_vidore3(tmp_path: Path) -> DatasetTables:
    write_like_vidore3(tmp_path / "hub/small")
    return DatasetTables(PUBLISHED, tmp_path / "hub")


def test_queries_come_with_their_language_and_graded_judgements(like_vidore2: DatasetTables) -> None:
    judged_queries = read_judged_queries(like_vidore2)
    assert [query.text for query in judged_queries.queries] == [
        "revenue english",
        "margin english",
        "revenue french",
        "margin french",
    ]
    assert judged_queries.qrels["0"] == {"0": 2, "1": 1}
    assert judged_queries.left_out == 2


def test_a_table_for_each_language_keeps_equal_ids_apart(tmp_path: Path) -> None:
    write_like_vidore3(tmp_path / "small")
    tables = DatasetTables(PUBLISHED, tmp_path)
    both, french = read_judged_queries(tables), read_judged_queries(tables, ["french"])
    assert [query.query_id for query in french.queries] == ["french-q0", "french-q1", "french-q2"]
    assert french.qrels["french-q1"] == {"p/1": 2}
    assert len(both.queries) == 6
    with pytest.raises(DatasetError, match="no query in klingon; its languages are: english, french"):
        read_judged_queries(tables, ["klingon"])


def test_pages_of_the_same_bytes_are_one_page_with_the_best_grade(
    like_vidore2: DatasetTables, tmp_path: Path
) -> None:
    files = write_pages(like_vidore2, tmp_path / "work")
    assert files.rename_pages({"q": {"3": 1, "4": 2, "0": 1}}) == {"q": {"3.png#1": 2, "0.png#1": 1}}


def test_ids_that_are_no_file_names_are_spelled_out(like_vidore3: DatasetTables, tmp_path: Path) -> None:
    files = write_pages(like_vidore3, tmp_path / "work")
    assert {path.name for path in files.folder.iterdir()} == {"p%2f0.png", "p%2f1.jpg"}
    assert files.rename_pages({"q": {"p/1": 2}}) == {"q": {"p%2f1.jpg#1": 2}}


def test_pages_of_another_revision_are_refused(like_vidore2: DatasetTables, tmp_path: Path) -> None:
    write_pages(like_vidore2, tmp_path / "work")
    other = DatasetTables(HubDataset("vidore/small", "1" * 40), tmp_path / "hub")
    with pytest.raises(DatasetError, match="holds pages of vidore/small@0000"):
        write_pages(other, tmp_path / "work")


def test_a_page_that_is_no_image_is_refused(tmp_path: Path) -> None:
    write_table(tmp_path / "small", "corpus", [{"corpus-id": 0, "image": {"bytes": b"text", "path": None}}])
    with pytest.raises(DatasetError, match="page '0' is no image"):
        write_pages(DatasetTables(PUBLISHED, tmp_path), tmp_path / "work")


def test_a_copy_that_is_incomplete_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="no such folder; wanted a copy of vidore/small"):
        DatasetTables(PUBLISHED, tmp_path)
    write_table(tmp_path / "small", "corpus", corpus_rows({0: 1}))
    with pytest.raises(DatasetError, match="has the tables corpus, and no queries"):
        read_judged_queries(DatasetTables(PUBLISHED, tmp_path))
    write_table(tmp_path / "small", "queries", [{"query-id": 0, "title": "no text"}])
    with pytest.raises(DatasetError, match="columns query-id, title; wanted one of query, text"):
        read_judged_queries(DatasetTables(PUBLISHED, tmp_path))


def test_a_family_is_read_in_the_order_of_the_papers_tables(tmp_path: Path) -> None:
    for source in VIDORE2.corpora:
        write_like_vidore2(tmp_path / "hub" / source.hub_dataset.name)
    benchmark = load_vidore("vidore2", tmp_path / "work", languages=["english"], local=tmp_path / "hub")
    assert [corpus.name for corpus in benchmark.corpora] == ["Biomed", "Econ", "ESG-H", "ESG-F"]
    biomed = benchmark.corpora[0]
    assert biomed.qrels == {"0": {"0.png#1": 2, "1.jpg#1": 1}, "1": {"3.png#1": 2}}
    assert "8 queries in all, the paper counts 1,038" in benchmark.note
    corpus = load_vidore("vidore2", tmp_path / "w", corpora=frozenset({"Econ"}), local=tmp_path / "hub")
    assert [corpus.name for corpus in corpus.corpora] == ["Econ"]
    with pytest.raises(DatasetError, match="no corpus 'econ' in vidore2; there are: Biomed, Econ"):
        load_vidore("vidore2", tmp_path / "w", corpora=frozenset({"econ"}), local=tmp_path / "hub")
