"""From a chunk of a text pipeline to the page it was cut from: its metadata names a file and a number."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath

SOURCE_KEYS = ("source", "file_path", "file_name", "filename")
"""Where loaders put a file: LangChain, Haystack and LlamaIndex, LlamaIndex, Unstructured."""
COUNTED_FROM_ONE = ("page_number", "page_label")
"""Where loaders put a page's number from 1: Haystack and Unstructured, LlamaIndex."""


@dataclass(frozen=True, slots=True)
class ChunkPages:
    """How metadata names a page: a file under one of `source_keys`, and a number.

    `page` is counted from `first_page`, which is 0 for LangChain's loaders. Where there is none, the number
    is read from `page_number` or `page_label`, counted from 1.
    """

    first_page: int = 1
    source_keys: tuple[str, ...] = SOURCE_KEYS

    def page_names(self, metadata: Mapping[str, object]) -> tuple[str, ...]:
        """The references the chunk's page may have, none where metadata names no file or no number."""
        number = self._number(metadata)
        sources = [
            source for key in self.source_keys if isinstance(source := metadata.get(key), str) and source
        ]
        if number is None or number < 1:
            return ()
        return tuple(dict.fromkeys(name for source in sources for name in source_page_names(source, number)))

    def _number(self, metadata: Mapping[str, object]) -> int | None:
        page = metadata.get("page")
        if isinstance(page, int) and not isinstance(page, bool):
            return page - self.first_page + 1
        for key in COUNTED_FROM_ONE:
            number = metadata.get(key)
            if isinstance(number, int | str) and str(number).isascii() and str(number).isdigit():
                return int(number)
        return None


def source_page_names(source: str, number: int) -> tuple[str, ...]:
    """The references that page `number` (from 1) of a file may have: with its folders, and without."""
    return tuple(dict.fromkeys((f"{source}#{number}", f"{PurePath(source).name}#{number}")))
