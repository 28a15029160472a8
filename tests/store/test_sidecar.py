from pathlib import Path

import pytest

from ridgerank.errors import StoreError
from ridgerank.store import lance_dataset
from ridgerank.store.sidecar import calibrations_folder, recall_sources, remember_sources


def test_sources_are_found_by_name_as_long_as_they_are_there(tmp_path: Path) -> None:
    root = tmp_path / "store"
    root.mkdir()
    files = [tmp_path / "a.pdf", tmp_path / "other/a.pdf", tmp_path / "b.pdf"]
    files[1].parent.mkdir()
    for file in files:
        file.touch()
    remember_sources(str(root), {"a.pdf": files[0], "b.pdf": files[2]})
    remember_sources(str(root), {"a.pdf": files[1]})
    assert recall_sources(str(root), ["a.pdf"]) == [files[1], files[0]]
    files[1].unlink()
    assert recall_sources(str(root), ["a.pdf", "b.pdf", "unknown.pdf"]) == [files[0], files[2]]


def test_many_documents_are_remembered_by_one_write_and_one_that_moves_daily_does_not_add_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    write = lance_dataset.write_file

    def note(uri: str, name: str, content: bytes) -> None:
        sizes.append(len(content))
        write(uri, name, content)

    monkeypatch.setattr(lance_dataset, "write_file", note)
    for day in range(20):
        paths = {f"{name}.pdf": tmp_path / f"{day:02}/{name}.pdf" for name in range(500)}
        remember_sources(str(tmp_path), paths)
    assert len(sizes) == 20
    assert sizes[-1] == sizes[9] < 10 * sizes[0]


def test_a_store_that_is_not_local_has_no_folder_of_calibrations() -> None:
    with pytest.raises(StoreError, match="not on a local disk"):
        calibrations_folder("s3://bucket/store")


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"a": [3]}', b"[" * 100_000, b"\xff"])
def test_a_damaged_list_of_sources_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "_sources.json").write_bytes(content)
    with pytest.raises(StoreError, match=r"_sources\.json of the page store at .* is damaged"):
        recall_sources(str(tmp_path), ["a.pdf"])
