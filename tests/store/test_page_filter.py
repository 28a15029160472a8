"""Some pages of a store: by document, by metadata; the condition is Lance's."""

from pathlib import Path

import pytest

from ridgerank.backbones.base import Backbone
from ridgerank.documents.sources import DocumentMetadata
from ridgerank.errors import DocumentError, StoreError
from ridgerank.indexing.index import index_documents
from ridgerank.store.page_filter import PageFilter, labels_of
from ridgerank.store.page_store import PageStore
from tests.conftest import write_pdf


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, small_backbone: Backbone) -> Path:
    folder = tmp_path_factory.mktemp("filtered")
    for number, name in enumerate(["2019/annual.pdf", "2020/annual.pdf", "it's (new) [1].pdf"]):
        write_pdf(folder / "docs" / name, pages=2, seed=number)
    (folder / "docs" / "metadata.jsonl").write_text(
        '{"document": "2019/annual.pdf", "year": 2019, "kind": ["report", "audited"]}\n'
        '{"document": "2020/annual.pdf", "year": 2020, "kind": "report"}\n'
    )
    index_documents(folder / "docs", folder / "pages", small_backbone, processes=0)
    return folder / "pages"


def selected(store: Path, page_filter: PageFilter) -> set[str]:
    with PageStore.open(store) as opened:
        page_ids = sorted(opened.select(page_filter).page_ids)
        return {reference.partition("#")[0] for reference in opened.references(page_ids)}


@pytest.mark.parametrize(
    ("globs", "documents"),
    [
        (["annual.pdf"], {"2019/annual.pdf", "2020/annual.pdf"}),
        (["2019/*"], {"2019/annual.pdf"}),
        (["2019/*", "it's*"], {"2019/annual.pdf", "it's (new) [1].pdf"}),
        (["*(new)*"], {"it's (new) [1].pdf"}),
        (["20?9/annual.pdf"], {"2019/annual.pdf"}),
    ],
)
def test_documents_are_selected_by_globs(store: Path, globs: list[str], documents: set[str]) -> None:
    assert selected(store, PageFilter.of(globs)) == documents


def test_documents_are_selected_by_metadata(store: Path) -> None:
    assert selected(store, PageFilter.of(metadata={"year": 2019})) == {"2019/annual.pdf"}
    assert selected(store, PageFilter.parse([], ["kind=report"])) == {"2019/annual.pdf", "2020/annual.pdf"}
    assert selected(store, PageFilter.parse(["annual*"], ["kind=audited"])) == {"2019/annual.pdf"}
    with PageStore.open(store) as opened:
        assert {label.partition("=")[0] for label in opened.label_examples()} == {"kind", "year"}


def test_a_filter_that_fits_nothing_says_how_pages_are_called(store: Path) -> None:
    with pytest.raises(StoreError, match=r"no page of .* has documents 2021/\*; .* 2019/annual\.pdf#1"):
        selected(store, PageFilter.of("2021/*"))
    with pytest.raises(StoreError, match="expected KEY=VALUE"):
        PageFilter.parse([], ["year"])


def test_metadata_changes_without_encoding_a_page_again(
    store: Path, tmp_path: Path, small_backbone: Backbone
) -> None:
    write_pdf(tmp_path / "docs" / "a.pdf", pages=1)
    index_documents(tmp_path / "docs", tmp_path / "pages", small_backbone, processes=0)
    with pytest.raises(StoreError, match=r"has no metadata; put metadata\.jsonl beside the documents"):
        selected(tmp_path / "pages", PageFilter.of(metadata={"year": 1}))
    for year in (1, 2):
        (tmp_path / "docs" / "metadata.jsonl").write_text(f'{{"document": "a.pdf", "year": {year}}}\n')
        report = index_documents(tmp_path / "docs" / "a.pdf", tmp_path / "pages", small_backbone, processes=0)
        assert (report.added, report.skipped) == (0, 1)
        assert selected(tmp_path / "pages", PageFilter.of(metadata={"year": year})) == {"a.pdf"}
    write_pdf(tmp_path / "docs" / "b.pdf", pages=1, seed=9)
    index_documents(tmp_path / "docs", tmp_path / "pages", small_backbone, processes=0)
    assert selected(tmp_path / "pages", PageFilter.of(metadata={"year": 2})) == {"a.pdf"}
    index_documents(tmp_path / "docs" / "b.pdf", tmp_path / "pages", small_backbone, processes=0)
    for change in (lambda file: file.write_text("\n"), Path.unlink):
        assert selected(tmp_path / "pages", PageFilter.of(metadata={"year": 2})) == {"a.pdf"}
        change(tmp_path / "docs" / "metadata.jsonl")
        index_documents(tmp_path / "docs", tmp_path / "pages", small_backbone, processes=0)
        with pytest.raises(StoreError, match="no page of"):
            selected(tmp_path / "pages", PageFilter.of(metadata={"year": 2}))
        (tmp_path / "docs" / "metadata.jsonl").write_text('{"document": "a.pdf", "year": 2}\n')
        index_documents(tmp_path / "docs", tmp_path / "pages", small_backbone, processes=0)
    (tmp_path / "docs" / "metadata.jsonl").write_text('{"year": 3}\n')
    with pytest.raises(DocumentError, match=r"metadata\.jsonl, line 1: .* expected an object with document"):
        index_documents(tmp_path / "docs", tmp_path / "pages", small_backbone, processes=0)


def test_labels_are_text_numbers_and_lists() -> None:
    assert labels_of("kind", ["a", 1, 2.5, True]) == ["kind=a", "kind=1", "kind=2.5", "kind=true"]
    with pytest.raises(StoreError, match=r"kind of a\.pdf is None, expected text"):
        labels_of("kind", None, of=" of a.pdf")


def test_the_nearest_metadata_that_names_a_document_counts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "metadata.jsonl").write_text('{"file_name": "of another program"}\n')
    (tmp_path / "a/metadata.jsonl").write_text(
        '{"document": "b/x.pdf", "n": 1}\n{"document": "b/y.pdf", "n": 2}\n'
    )
    (tmp_path / "a/b/metadata.jsonl").write_text('{"document": "x.pdf", "n": 3}\n')
    for roots in ([tmp_path / "a"], [tmp_path / "a/b"], [tmp_path / "a/b/x.pdf"]):
        metadata = DocumentMetadata(roots)
        found = [dict(metadata.fields(tmp_path / "a/b" / name)) for name in ("x.pdf", "y.pdf", "z.pdf")]
        assert found == [{"n": 3}, {"n": 2}, {}]
    assert "of another program" in caplog.text
    with pytest.raises(DocumentError, match="expected an object with document"):
        DocumentMetadata([tmp_path])
    (tmp_path / "metadata.jsonl").write_text('{"document": "a.pdf", "n": "\\ud800"}\n')
    with pytest.raises(DocumentError, match=r"line 1: not JSON .*surrogates"):
        DocumentMetadata([tmp_path])
