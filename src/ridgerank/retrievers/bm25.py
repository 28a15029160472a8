"""BM25 over the text of a store's pages, and over the texts of one list."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence

import bm25s
import numpy as np

from ridgerank.ragged import Floats
from ridgerank.retrievers.base import TextRetriever
from ridgerank.store.page_store import PageStore

_WORD = re.compile(r"\w+")
_UNSPACED = re.compile(
    "([\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]+)"
)
"""Runs of scripts without spaces: Thai, Lao, Burmese, Khmer, kana and Chinese characters."""
_K1, _B = 1.5, 0.75


class BM25(TextRetriever):
    """Pages by the words they share with the query, rare words counting more (Lucene's BM25).

    Words are runs of letters and digits of any script, lower case, without accents. There is no stemming and
    no list of stop words. Pages without text score 0.
    """

    name = "bm25"

    def __len__(self) -> int:
        return len(self._ids)

    def __init__(self, store: PageStore) -> None:
        texts = self._read_texts(store, _words)
        self._index = bm25s.BM25(method="lucene", k1=_K1, b=_B)
        self._index.index([_words(text) for text in texts.values()], show_progress=False)

    def _scores(self, queries: Sequence[str]) -> Floats:
        scores = np.zeros((len(queries), len(self._ids)))
        for row, query in zip(scores, queries, strict=True):
            if known := [word for word in _words(query) if word in self._index.vocab_dict]:
                row[:] = self._index.get_scores(known)
        return scores

    def holding(self, word: str) -> int:
        """How many of the pages hold a word."""
        column = self._index.vocab_dict.get(word)
        starts = self._index.scores["indptr"]
        return 0 if column is None else int(starts[column + 1] - starts[column])


def score_texts(query: str, texts: Sequence[str], store: BM25 | None = None) -> Floats:
    """Lucene's BM25 of the texts of one list, (texts,).

    How rare a word is, store and list say together; how long a text is on average, the list.
    """
    counts = [Counter(_words(text)) for text in texts]
    lengths = np.array([count.total() for count in counts], dtype=np.float64)
    norms = _K1 * (1 - _B + _B * lengths / max(1.0, lengths.mean()))
    total = len(texts) + (0 if store is None else len(store))
    scores = np.zeros(len(texts))
    for word in _words(query):
        held = np.array([count[word] for count in counts], dtype=np.float64)
        holding = np.count_nonzero(held) + (0 if store is None else store.holding(word))
        scores += np.log1p((total - holding + 0.5) / (holding + 0.5)) * held / (held + norms)
    return scores


def _words(text: str) -> list[str]:
    plain = text.casefold()
    if not plain.isascii():
        decomposed = unicodedata.normalize("NFKD", plain)
        plain = "".join(char for char in decomposed if not unicodedata.combining(char))
    return [word for run in _WORD.findall(plain) for word in _split_run(run)]


def _split_run(run: str) -> Iterator[str]:
    """A word as it is; of a script without spaces its pairs of characters, or a single one."""
    if run.isascii():
        yield run
        return
    for part in filter(None, _UNSPACED.split(run)):
        if _UNSPACED.fullmatch(part) and len(part) > 1:
            yield from (part[start : start + 2] for start in range(len(part) - 1))
        else:
            yield part
