"""Scores of the tokens of a page's text: words that distinguish the page above filler words.

Other pages and the language are not known while a page is stored, so a word's rarity is estimated from the
word and the page alone. Longer words are rarer; a repeated word adds little; digits, capitals inside a line
and headings name what queries ask for.
"""

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_WORD = re.compile(r"\w+(?:[.,'’%-]\w+)*%?")
_HEADING_WORDS = 8
_LONG_WORD = 10
"""A longer word than this scores no higher."""


def score_tokens(pieces: Sequence[str]) -> NDArray[np.float64]:
    """(tokens,): the score of each token's word; negative between words.

    Of a word of several tokens the last scores highest: a causal model has read the whole word there.
    """
    text = "".join(pieces)
    starts = np.cumsum([0, *(len(piece) for piece in pieces)])
    character_scores = np.full(len(text) + 1, -1.0)
    counts: Counter[str] = Counter()
    offset = 0
    for line in text.split("\n"):
        words = list(_WORD.finditer(line))
        heading = (
            0.5 if 0 < len(words) <= _HEADING_WORDS and not line.rstrip().endswith((".", ",", ";")) else 0.0
        )
        for index, word in enumerate(words):
            score = _score_word(word[0], opens_line=index == 0) + heading
            character_scores[offset + word.start() : offset + word.end()] = score - 0.7 * np.log1p(
                counts[word[0].lower()]
            )
            character_scores[offset + word.end() - 1] += 0.25
            counts[word[0].lower()] += 1
        offset += len(line) + 1
    # A token may start with the blank before its word; its last character belongs to the word.
    ends = np.maximum(starts[1:] - 1, starts[:-1])
    scores: NDArray[np.float64] = character_scores[ends]
    return scores


def _score_word(word: str, *, opens_line: bool) -> float:
    score = min(len(word), _LONG_WORD) / _LONG_WORD
    if any(character.isdigit() for character in word):
        return score + 0.8
    if word[0].isupper() and not opens_line:
        score += 0.4
    return score
