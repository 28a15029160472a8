"""Whatever bytes a PDF file holds: its pages are listed, or it is one failure that says what to do."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ridgerank.documents.render import PageRef, list_pages
from ridgerank.documents.sources import Failure
from tests.conftest import write_pdf

changes = st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(1, 255)), max_size=6)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fuzzed")
    write_pdf(folder / "whole.pdf", pages=2)
    return folder


@settings(max_examples=100, deadline=None)
@given(changes=changes, cut=st.floats(0, 2))
def test_a_changed_or_cut_pdf_is_listed_or_refused(
    changes: list[tuple[float, int]], cut: float, folder: Path
) -> None:
    whole = (folder / "whole.pdf").read_bytes()
    content = bytearray(whole[: round(cut * len(whole))] if cut < 1 else whole)
    for position, mask in changes:
        if content:
            content[int(position * len(content))] ^= mask
    (folder / "changed.pdf").write_bytes(content)
    items = list(list_pages([folder / "changed.pdf"]))
    assert items
    assert all(isinstance(item, PageRef | Failure) for item in items)
