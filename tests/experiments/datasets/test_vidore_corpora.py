import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from experiments.datasets import hub
from experiments.datasets.hub import DatasetTables, HubDataset
from experiments.datasets.judged import keep_judged
from experiments.datasets.vidore_corpora import (
    VIDORE2,
    VIDORE3,
    JudgedQueries,
    PublishedCorpus,
    count_note,
    load_vidore,
    read_judged_queries,
    write_pages,
)
from ridgerank.documents.render import PageRef, list_pages
from ridgerank.errors import DatasetError
from ridgerank.records import Query
from ridgerank.trec import read_qrels
from tests.experiments.datasets.hub_copy import (
    corpus_rows,
    picture,
    write_like_vidore2,
    write_like_vidore3,
    write_table,
)

PUBLISHED = HubDataset("vidore/small", "0" * 40)
REAL = Path(__file__).parents[4] / "shared/data/vidore2"
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
    assert judged_queries.languages == {"english": 2, "french": 2}
    assert judged_queries.left_out == 2


def test_languages_are_selected(like_vidore2: DatasetTables) -> None:
    assert [query.query_id for query in read_judged_queries(like_vidore2, ["french"]).queries] == ["3", "4"]
    with pytest.raises(DatasetError, match="no query in klingon; its languages are: english, french"):
        read_judged_queries(like_vidore2, ["klingon"])


def test_a_table_for_each_language_keeps_equal_ids_apart(tmp_path: Path) -> None:
    write_like_vidore3(tmp_path / "small")
    tables = DatasetTables(PUBLISHED, tmp_path)
    both, french = read_judged_queries(tables), read_judged_queries(tables, ["french"])
    assert [query.query_id for query in french.queries] == ["french-q0", "french-q1", "french-q2"]
    assert french.qrels["french-q1"] == {"p/1": 2}
    assert len(both.queries) == 6
    assert both.languages == {"english": 3, "french": 3}
    with pytest.raises(DatasetError, match="no query in klingon; its languages are: english, french"):
        read_judged_queries(tables, ["klingon"])


def test_pages_become_files_that_judgements_name(like_vidore2: DatasetTables, tmp_path: Path) -> None:
    files = write_pages(like_vidore2, tmp_path / "work")
    references = {ref.reference for ref in list_pages([files.folder]) if isinstance(ref, PageRef)}
    assert references == {"0.png#1", "1.jpg#1", "2.png#1", "3.png#1"}
    assert (files.folder / "1.jpg").read_bytes() == picture(11, kind="JPEG")
    with Image.open(files.folder / "2.png") as image:
        assert image.getpixel((0, 0)) == (12, 200, 90)


def test_pages_of_the_same_bytes_are_one_page_with_the_best_grade(
    like_vidore2: DatasetTables, tmp_path: Path
) -> None:
    files = write_pages(like_vidore2, tmp_path / "work")
    assert files.rename_pages({"q": {"3": 1, "4": 2, "0": 1}}) == {"q": {"3.png#1": 2, "0.png#1": 1}}
    assert files.note("small") == "small: 1 of 5 pages are copies and count as one"


def test_ids_that_are_no_file_names_are_spelled_out(like_vidore3: DatasetTables, tmp_path: Path) -> None:
    files = write_pages(like_vidore3, tmp_path / "work")
    assert {path.name for path in files.folder.iterdir()} == {"p%2f0.png", "p%2f1.jpg"}
    assert files.rename_pages({"q": {"p/1": 2}}) == {"q": {"p%2f1.jpg#1": 2}}


def test_an_interrupted_writing_goes_on(
    like_vidore2: DatasetTables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = DatasetTables.rows

    def cut(tables: DatasetTables, table: str) -> Iterator[Mapping[str, Any]]:
        for number, row in enumerate(rows(tables, table)):
            if number == 2:
                raise KeyboardInterrupt
            yield row

    monkeypatch.setattr(DatasetTables, "rows", cut)
    with pytest.raises(KeyboardInterrupt):
        write_pages(like_vidore2, tmp_path / "work")
    monkeypatch.undo()
    written = {path: path.stat().st_mtime_ns for path in (tmp_path / "work/documents").iterdir()}
    assert len(written) == 2
    files = write_pages(like_vidore2, tmp_path / "work")
    assert len(list(files.folder.iterdir())) == 4
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in written.items())


def test_what_is_there_whole_is_not_read_again(
    like_vidore2: DatasetTables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = write_pages(like_vidore2, tmp_path / "work")
    monkeypatch.setattr(DatasetTables, "rows", lambda *_: pytest.fail("read again"))
    again = write_pages(like_vidore2, tmp_path / "work")
    assert again.rename_pages({"q": {"3": 1}}) == first.rename_pages({"q": {"3": 1}})


def test_a_file_that_is_gone_is_written_again(like_vidore2: DatasetTables, tmp_path: Path) -> None:
    files = write_pages(like_vidore2, tmp_path / "work")
    (files.folder / "0.png").unlink()
    write_pages(like_vidore2, tmp_path / "work")
    assert (files.folder / "0.png").read_bytes() == picture(10)


def test_pages_of_another_revision_are_refused(like_vidore2: DatasetTables, tmp_path: Path) -> None:
    write_pages(like_vidore2, tmp_path / "work")
    other = DatasetTables(HubDataset("vidore/small", "1" * 40), tmp_path / "hub")
    with pytest.raises(DatasetError, match="holds pages of vidore/small@0000"):
        write_pages(other, tmp_path / "work")


def test_a_judgement_on_a_page_the_corpus_lacks_is_refused(
    like_vidore2: DatasetTables, tmp_path: Path
) -> None:
    files = write_pages(like_vidore2, tmp_path / "work")
    with pytest.raises(DatasetError, match="'q' is judged on page '77', which the corpus lacks"):
        files.rename_pages({"q": {"77": 1}})


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


def test_the_hub_is_asked_for_the_pinned_revision(
    like_vidore2: DatasetTables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library itself reads a folder whose card names the tables, in place of a repository."""
    folder = tmp_path / "hub/small"
    configs = "".join(
        f"- config_name: {name}\n  data_files:\n  - split: test\n    path: {name}/test-*\n"
        for name in ("corpus", "queries", "qrels")
    )
    (folder / "README.md").write_text(f"---\nconfigs:\n{configs}---\n")
    library = hub._datasets()
    revisions = []

    class Recording:
        Image = library.Image

        def get_dataset_config_names(self, path: str, *, revision: str) -> object:
            revisions.append(revision)
            return library.get_dataset_config_names(path)

        def load_dataset(self, path: str, table: str, *, split: str, revision: str) -> object:
            revisions.append(revision)
            return library.load_dataset(path, table, split=split, cache_dir=str(tmp_path / "cache"))

    expected = read_judged_queries(like_vidore2).qrels
    monkeypatch.setattr(hub, "_datasets", Recording)
    online = DatasetTables(HubDataset(str(folder), "abc"), None)
    assert read_judged_queries(online).qrels == expected
    files = write_pages(online, tmp_path / "work")
    assert (files.folder / "1.jpg").read_bytes() == picture(11, kind="JPEG")
    assert set(revisions) == {"abc"}


def test_a_family_is_read_in_the_order_of_the_papers_tables(tmp_path: Path) -> None:
    for source in VIDORE2.corpora:
        write_like_vidore2(tmp_path / "hub" / source.hub_dataset.name)
    benchmark = load_vidore("vidore2", tmp_path / "work", languages=["english"], local=tmp_path / "hub")
    assert [corpus.name for corpus in benchmark.corpora] == ["Biomed", "Econ", "ESG-H", "ESG-F"]
    biomed = benchmark.corpora[0]
    assert biomed.qrels == {"0": {"0.png#1": 2, "1.jpg#1": 1}, "1": {"3.png#1": 2}}
    assert "8 queries in all, the paper counts 1,038" in benchmark.note
    assert "Biomed: 1 of 5 pages are copies" in benchmark.note
    corpus = load_vidore("vidore2", tmp_path / "w", corpora=frozenset({"Econ"}), local=tmp_path / "hub")
    assert [corpus.name for corpus in corpus.corpora] == ["Econ"]
    with pytest.raises(DatasetError, match="no corpus 'econ' in vidore2; there are: Biomed, Econ"):
        load_vidore("vidore2", tmp_path / "w", corpora=frozenset({"econ"}), local=tmp_path / "hub")


def test_the_papers_counts_add_up() -> None:
    assert sum(source.paper_queries or 0 for source in VIDORE2.corpora) == VIDORE2.paper_queries == 1038
    assert len(VIDORE3.corpora) == 8
    revisions = [source.hub_dataset.revision for source in (*VIDORE2.corpora, *VIDORE3.corpora)]
    assert len(set(revisions)) == 12
    assert {len(revision) for revision in revisions} == {40}


def judged_queries(languages: dict[str, int], left_out: int = 0) -> JudgedQueries:
    queries = tuple(Query(f"{language}-{n}", "?") for language, k in languages.items() for n in range(k))
    return JudgedQueries(queries, {}, languages, left_out)


def test_a_count_that_differs_from_the_papers_is_explained_by_languages_or_stated() -> None:
    source = PublishedCorpus("ESG-F", PUBLISHED, 114)
    four = judged_queries({"english": 57, "french": 57, "german": 57, "spanish": 57})
    assert count_note(source, four) == (
        "ESG-F: 228 queries (57 in each of english, french, german, spanish); the paper counts 114, "
        "as many as 2 of its languages hold; it does not say which"
    )
    assert count_note(source, judged_queries({"english": 57, "french": 57})) == (
        "ESG-F: 114 queries (57 in each of english, french)"
    )
    assert count_note(source, judged_queries({"english": 50, "french": 51}, 3)) == (
        "ESG-F: 101 queries (50 english, 51 french), 3 more that no page answers left out; "
        "the paper counts 114"
    )


@pytest.mark.skipif(not REAL.is_dir(), reason="needs the real queries and judgements of ViDoRe 2")
@pytest.mark.parametrize("source", VIDORE2.corpora, ids=lambda source: source.label)
def test_the_real_counts_are_the_papers_but_for_one_corpus(source: PublishedCorpus) -> None:
    name = source.hub_dataset.name
    lines = (REAL / f"{name}.queries.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    queries, qrels, left_out = keep_judged(
        [Query(row["query_id"], row["text"]) for row in rows], read_qrels(REAL / f"{name}.qrels.trec")
    )
    spoken = {row["query_id"]: row["language"] for row in rows}
    languages = Counter(spoken[query.query_id] for query in queries)
    note = count_note(source, JudgedQueries(queries, qrels, languages, left_out))
    if source.label == "ESG-F":
        assert "the paper counts 114, as many as 2 of its languages hold" in note
    else:
        assert len(queries) == source.paper_queries
        assert "the paper counts" not in note
