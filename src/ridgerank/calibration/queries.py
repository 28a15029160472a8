"""The queries a readout is fitted to: those given, or else generated from the pages.

Queries are generated from titles, captions, table headers and phrases of the pages' text, or written by the
model. The same pages give the same queries. Queries in a page's own words flatter a retriever that matches
words; the report of a calibration says where its queries came from.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

from ridgerank.backbones.base import Backbone
from ridgerank.calibration.fit import LEAST_LISTS
from ridgerank.calibration.teacher import TargetCache
from ridgerank.errors import CalibrationError
from ridgerank.records import MAX_QUERY_CHARACTERS, Query
from ridgerank.store.page_store import PageStore
from ridgerank.store.sidecar import rerender_pages

QUERIES = 32
"""Queries generated where none are given."""

QuerySource: TypeAlias = Literal["auto", "text", "model"]
"""What generates queries: the pages' text, the model, or the model only where the text gives too few."""

_CAPTION = re.compile(
    r"(?:figure|fig\.|table|chart|exhibit|graph)\s*[\dA-Z.-]*\s*[:.–—-]?\s+(\S.*)", re.IGNORECASE
)
_COLUMNS = re.compile(r"\t|\s{2,}|\s\|\s")
_WORD = re.compile(r"[^\W\d_]{2,}")
_LEAST_WORDS, _MOST_WORDS = 3, 14
_PHRASE_WORDS = 7


QuerySet: TypeAlias = tuple[tuple[Query, ...], str]
"""Queries, and in one line where they came from."""


def choose_queries(
    queries: Sequence[Query] | None,
    backbone: Backbone,
    store: PageStore,
    cache: TargetCache,
    *,
    origin: str,
    source: QuerySource = "auto",
    count: int,
    documents: Sequence[Path],
) -> QuerySet:
    """The queries given, each text once, or else `count` generated ones; too few are refused."""
    by_text: dict[str, Query] = {}
    for query in queries or ():
        by_text.setdefault(query.text, query)
    chosen = tuple(by_text.values())
    if not queries and source != "model":
        chosen, origin = queries_from_texts(store.texts(), count)
    if not queries and source != "text" and len(chosen) < LEAST_LISTS:
        chosen, origin = write_queries(backbone, store, cache, count=count, documents=documents)
    if len(chosen) < LEAST_LISTS:
        raise CalibrationError(
            f"{len(chosen)} different queries ({origin}), expected at least {LEAST_LISTS}; give them in a "
            "file: no judgements are needed"
        )
    return chosen, origin


def write_queries(
    backbone: Backbone, store: PageStore, cache: TargetCache, *, count: int, documents: Sequence[Path]
) -> QuerySet:
    """Queries the model writes for pages, in the order of page ids, until there are `count`."""
    queries: dict[str, Query] = {}
    page_ids = sorted(store.page_ids())
    for start in range(0, len(page_ids), count):
        some_ids = page_ids[start : start + count]
        unwritten = [page_id for page_id in some_ids if cache.written_query(page_id) is None]
        for pages in rerender_pages(store, unwritten, max_pixels=backbone.page_budget, documents=documents):
            contents = [backbone.content(page) for page in pages]
            prefixes = backbone.encode(contents, exit_layer=backbone.geometry.layers)
            for page, text in zip(pages, backbone.write_queries(prefixes), strict=True):
                cache.add_written_query(page.page_id, text)
        for page_id in some_ids:
            text = cache.written_query(page_id) or ""
            if is_query(text) and len(queries) < count:
                queries.setdefault(text.casefold(), Query(f"asked-{page_id[:16]}", text))
        if len(queries) == count:
            break
    return tuple(queries.values()), f"asked of the model: {len(queries)}, a page each"


def queries_from_texts(texts: Mapping[str, str], count: int) -> QuerySet:
    """At most `count` different queries from page texts, by page id; fewer where the pages say too little.

    Pages take turns in the order of their ids, which is as good as random, and so do the kinds of query.
    """
    text_and_kind: dict[str, tuple[str, str]] = {}
    kinds = list(_KINDS)
    pages = [page_id for page_id in sorted(texts) if texts[page_id].strip()]
    for turn in range(len(kinds)):
        for number, page_id in enumerate(pages):
            if len(text_and_kind) == count:
                break
            kind, text = _first_query(
                texts[page_id], [kinds[(number + turn + step) % len(kinds)] for step in range(4)]
            )
            if text and text.casefold() not in {other.casefold() for other, _ in text_and_kind.values()}:
                text_and_kind[f"{kind}-{turn}-{page_id[:16]}"] = (text, kind)
    counts = Counter(kind for _, kind in text_and_kind.values())
    listed = ", ".join(f"{counts[kind]} {kind}s" for kind in kinds if counts[kind])
    queries = tuple(Query(query_id, text) for query_id, (text, _) in text_and_kind.items())
    return queries, f"made from the pages' text: {listed}"


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
