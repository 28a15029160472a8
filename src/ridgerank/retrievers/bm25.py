"""BM25 over the text of a store's pages."""

import re
import unicodedata
from collections.abc import Sequence

import bm25s
import numpy as np

from ridgerank.ragged import Floats
from ridgerank.retrievers.base import TextRetriever
from ridgerank.store.page_store import PageStore

_WORD = re.compile(r"\w+")


class BM25(TextRetriever):
    """Pages by the words they share with the query, rare words counting more (Lucene's BM25).

    Words are runs of letters and digits of any script, lower case, without accents. There is no stemming and
    no list of stop words. Pages without text score 0.
    """

    name = "bm25"

    def __init__(self, store: PageStore) -> None:
        texts = self._read_texts(store, _words)
        self._index = bm25s.BM25(method="lucene")
        self._index.index([_words(text) for text in texts.values()], show_progress=False)

    def _scores(self, queries: Sequence[str]) -> Floats:
        return np.stack([self._score_all(query) for query in queries])

    def _score_all(self, query: str) -> Floats:
        known = [word for word in _words(query) if word in self._index.vocab_dict]
        scores = self._index.get_scores(known) if known else np.zeros(len(self._ids))
        return np.asarray(scores, dtype=np.float64)


def _words(text: str) -> list[str]:
    plain = text.casefold()
    if not plain.isascii():
        decomposed = unicodedata.normalize("NFKD", plain)
        plain = "".join(char for char in decomposed if not unicodedata.combining(char))
    return _WORD.findall(plain)
