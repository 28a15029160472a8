"""The line of a page that a reader should see under a hit: the one with most of the query's words. Pure."""

import re
from dataclasses import dataclass

MAX_CHARACTERS = 220
_WORD = re.compile(r"\w+")
_SHORTEST = 3
"""Letters of a word that counts; shorter ones are in every line. Numbers count whatever their length."""
_COMMON_WORDS = """
all any about according among and are between but can did does each for from had has have her his how into
its many much not our per should than that the their them then there these they this those was were what when
where which who whom why with would your
"""
_COMMON = frozenset(_COMMON_WORDS.split())


_ALIKE, _ENDING = 4, 3
"""Forms of one word share this many letters at least, and end in this many others at most."""


@dataclass(frozen=True, slots=True)
class MatchedLine:
    """A line, or the part of a long one around the query's words."""

    text: str
    marks: tuple[tuple[int, int], ...]
    """The query's words in it: first character, and one past the last."""


def find_matching_line(text: str, query: str) -> MatchedLine | None:
    """The line with most different words of the query, the first of equals; the first where none has any.

    None where the page has no text.
    """
    wanted = {word.casefold() for word in _WORD.findall(query)}
    wanted = {word for word in wanted - _COMMON if len(word) >= _SHORTEST or word.isdigit()}
    lines = [" ".join(line.replace("|", " ").split()) for line in text.splitlines()]
    lines = [line for line in lines if any(sign.isalnum() for sign in line)]
    if not lines:
        return None
    return _cut(max(lines, key=lambda line: _count_matches(line, wanted)), wanted)


def _count_matches(line: str, wanted: set[str]) -> int:
    words = {word.casefold() for word in _WORD.findall(line)}
    return sum(any(_is_form(word, other) for other in words) for word in wanted)


def _cut(line: str, wanted: set[str]) -> MatchedLine:
    """At most `MAX_CHARACTERS` of the line, from shortly before the first word of the query on."""
    start = 0
    if len(line) > MAX_CHARACTERS:
        first = min((start for start, _ in _find_marks(line, wanted)), default=0)
        start = max(0, min(first - 40, len(line) - MAX_CHARACTERS))
        start = line.find(" ", start) + 1 if start else 0
    end = start + MAX_CHARACTERS
    shown = f"{'… ' if start else ''}{line[start:end].strip()}{' …' if end < len(line) else ''}"
    return MatchedLine(shown, tuple(_find_marks(shown, wanted)))


def _find_marks(line: str, wanted: set[str]) -> list[tuple[int, int]]:
    words = ((match.span(), match[0].casefold()) for match in _WORD.finditer(line))
    return [span for span, word in words if any(_is_form(word, other) for other in wanted)]


def _is_form(word: str, other: str) -> bool:
    """Whether two words differ in their endings only: `_ALIKE` letters or more alike, then few."""
    alike = 0
    for one_sign, other_sign in zip(word, other, strict=False):
        if one_sign != other_sign:
            break
        alike += 1
    longest_ending = max(len(word), len(other)) - alike
    return longest_ending == 0 or (alike >= _ALIKE and longest_ending <= _ENDING and not word[0].isdigit())
