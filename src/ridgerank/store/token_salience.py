"""What a token of a page's text is worth keeping: words that tell this page from others, over filler.

Nothing is known of other pages while one is stored, and nothing of its language; so a word's rarity is read
off the word itself and off the page. Longer words are rarer in every language that has words; a word met
before on the page adds little; digits, capitals inside a line and headings name what is asked for.
"""

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_WORD = re.compile(r"\w+(?:[.,'’%-]\w+)*%?")
_HEADING_WORDS = 8
_LONG = 10
"""Letters beyond which a word is no rarer for being longer."""


def token_worth(pieces: Sequence[str]) -> NDArray[np.float64]:
    """(tokens,): each token's worth is its word's; between words it is negative.

    Of a word of several tokens the last is worth most: a causal model has read the whole word there.
    """
    text = "".join(pieces)
    starts = np.cumsum([0, *(len(piece) for piece in pieces)])
    by_character = np.full(len(text) + 1, -1.0)
    met: Counter[str] = Counter()
    offset = 0
    for line in text.split("\n"):
        words = list(_WORD.finditer(line))
        heading = (
            0.5 if 0 < len(words) <= _HEADING_WORDS and not line.rstrip().endswith((".", ",", ";")) else 0.0
        )
        for place, word in enumerate(words):
            own = _word_worth(word[0], opens_line=place == 0) + heading
            by_character[offset + word.start() : offset + word.end()] = own - 0.7 * np.log1p(
                met[word[0].lower()]
            )
            by_character[offset + word.end() - 1] += 0.25
            met[word[0].lower()] += 1
        offset += len(line) + 1
    # A token may open with the blank before its word; its last character is the word's.
    ends = np.maximum(starts[1:] - 1, starts[:-1])
    worth: NDArray[np.float64] = by_character[ends]
    return worth


def _word_worth(word: str, *, opens_line: bool) -> float:
    worth = min(len(word), _LONG) / _LONG
    if any(sign.isdigit() for sign in word):
        return worth + 0.8
    if word[0].isupper() and not opens_line:
        worth += 0.4
    return worth
