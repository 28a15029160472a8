"""Questions cut from titles, captions, table headers and phrases of pages; each carries its page."""

import re
from collections.abc import Callable, Iterator, Mapping
from random import Random

from ridgerank.records import MAX_QUERY_CHARACTERS, Query

QUERIES = 48

_CAPTION = re.compile(
    r"(?:figure|fig\.|table|chart|exhibit|graph)\s*[\dA-Z.-]*\s*[:.–—-]?\s+(\S.*)", re.IGNORECASE
)
_COLUMNS = re.compile(r"\t|\s{2,}|\s\|\s")
_WORD = re.compile(r"[^\W\d_]{2,}")
_LEAST_WORDS, _MOST_WORDS = 3, 14
_PHRASE_WORDS = 7


def cut_questions(texts: Mapping[str, str], count: int) -> tuple[Query, ...]:
    """At most `count` different questions from page texts, by page id; pages and kinds take turns."""
    questions: dict[str, Query] = {}
    kinds = list(_KINDS)
    pages = [page_id for page_id in sorted(texts) if texts[page_id].strip()]
    for turn in range(len(kinds)):
        for number, page_id in enumerate(pages):
            if len(questions) == count:
                break
            order = [kinds[(number + turn + step) % len(kinds)] for step in range(len(kinds))]
            kind, text = _first_query(texts[page_id], order)
            if text:
                query = Query(f"{kind}-{turn}-{page_id[:16]}", text, source=page_id)
                questions.setdefault(text.casefold(), query)
    return tuple(questions.values())


def reorder_words(text: str) -> str:
    """The question with every third word dropped and the others shuffled, always in the same way."""
    words = [word for number, word in enumerate(text.split()) if number % 3 != 2]
    Random(text).shuffle(words)
    return " ".join(words)


def is_query(text: str) -> bool:
    """Whether a line looks like something a person might search for: a few different words, not too many."""
    words = _WORD.findall(text)
    return (
        len(words) >= _LEAST_WORDS
        and len(text.split()) <= _MOST_WORDS
        and len({word.casefold() for word in words}) >= _LEAST_WORDS
        and len(text) <= MAX_QUERY_CHARACTERS
    )


def _first_query(text: str, kinds: list[str]) -> tuple[str, str]:
    """The first kind of query that these lines give, and the query."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for kind in kinds:
        for candidate in _KINDS[kind](lines):
            if is_query(candidate):
                return kind, candidate
    return "", ""


def _titles(lines: list[str]) -> Iterator[str]:
    yield from (" ".join(line.split()) for line in lines[:3] if not line.endswith((".", ",", ";")))


def _captions(lines: list[str]) -> Iterator[str]:
    for line in lines:
        matched = _CAPTION.fullmatch(line)
        if matched:
            yield " ".join(matched[1].split()[:_MOST_WORDS])


def _headers(lines: list[str]) -> Iterator[str]:
    for line in lines:
        cells = [cell for cell in _COLUMNS.split(line) if cell]
        if len(cells) >= 3 and sum(bool(_WORD.search(cell)) for cell in cells) == len(cells):
            yield " ".join(" ".join(cells).split())


def _phrases(lines: list[str]) -> Iterator[str]:
    """Windows of words from the longest lines, starting inside: an opening is often shared by many pages."""
    for line in sorted(lines, key=len, reverse=True):
        words = line.strip(".,;:").split()
        start = max(0, (len(words) - _PHRASE_WORDS) // 2)
        yield " ".join(words[start : start + _PHRASE_WORDS]).strip(".,;:()")


_KINDS: dict[str, Callable[[list[str]], Iterator[str]]] = {
    "title": _titles,
    "caption": _captions,
    "table header": _headers,
    "phrase": _phrases,
}
