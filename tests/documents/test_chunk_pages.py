"""Chunks of text pipelines lead to their pages."""

import pytest

from ridgerank.documents.chunk_pages import ChunkPages

LANGCHAIN, OTHERS = ChunkPages(first_page=0), ChunkPages()


@pytest.mark.parametrize(
    ("chunks", "metadata", "names"),
    [
        (LANGCHAIN, {"source": "in/report.pdf", "page": 2}, ("in/report.pdf#3", "report.pdf#3")),
        (LANGCHAIN, {"source": "report.pdf", "page": 0, "page_label": "i"}, ("report.pdf#1",)),
        (OTHERS, {"source": "report.pdf", "page": 3}, ("report.pdf#3",)),
        (OTHERS, {"file_path": "report.pdf", "page_number": 3}, ("report.pdf#3",)),
        (OTHERS, {"file_name": "report.pdf", "page_label": "3"}, ("report.pdf#3",)),
        (OTHERS, {"filename": "report.pdf", "page_number": 3}, ("report.pdf#3",)),
        (OTHERS, {"file_name": "report.pdf", "page_label": "iii"}, ()),
        (OTHERS, {"source": "report.pdf", "page": 0}, ()),
        (OTHERS, {"source": "report.pdf"}, ()),
        (OTHERS, {"page": 3}, ()),
        (OTHERS, {"source": "report.pdf", "page": True}, ()),
    ],
)
def test_a_file_and_a_number_name_the_page(
    chunks: ChunkPages, metadata: dict[str, object], names: tuple[str, ...]
) -> None:
    assert chunks.page_names(metadata) == names
