"""The lines of a page that a query looked at, where the model reads the page's text. Pure."""

from collections.abc import Sequence

from ridgerank.documents.word_boxes import BoxedWord
from ridgerank.records import Passage, Region

Span = tuple[int, int]
"""First character in the text, and one past the last."""


def token_regions(spans: Sequence[Span], words: Sequence[BoxedWord]) -> list[Region | None]:
    """The box of the word that each token is part of; None for white space and for words without a place."""
    regions: list[Region | None] = []
    first = 0
    for start, end in spans:
        while first < len(words) and words[first].end <= start:
            first += 1
        inside = first < len(words) and words[first].start < end
        regions.append(_region(words[first : first + 1]) if inside else None)
    return regions


def split_passages(
    text: str, spans: Sequence[Span], weights: Sequence[float], words: Sequence[BoxedWord]
) -> tuple[Passage, ...]:
    """The lines of the text that the model read, top to bottom, each with the attention on its tokens."""
    passages: list[Passage] = []
    token = word = start = 0
    for line in text.splitlines(keepends=True):
        end = start + len(line)
        attention, read = 0.0, False
        while token < len(spans) and spans[token][0] < end:
            attention += weights[token]
            read = read or spans[token][1] > start
            token += 1
        first = word
        while word < len(words) and words[word].start < end:
            word += 1
        if read and line.strip():
            passages.append(Passage(line.strip(), attention, _region(words[first:word])))
        start = end
    return tuple(passages)


def _region(words: Sequence[BoxedWord]) -> Region | None:
    """The smallest box around some words."""
    if not words:
        return None
    boxes = [word.box for word in words]
    return (
        min(box.left for box in boxes),
        min(box.top for box in boxes),
        max(box.right for box in boxes),
        max(box.bottom for box in boxes),
    )
