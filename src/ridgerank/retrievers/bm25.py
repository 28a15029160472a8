"""BM25 over the text of a store's pages."""

import re
import unicodedata
from collections.abc import Sequence

import bm25s
import numpy as np

from ridgerank.errors import RetrieverError, StoreError
from ridgerank.ragged import Floats
from ridgerank.records import Candidate
from ridgerank.retrievers.base import Retriever, TextCollection, require_queries, top_candidates

_WORD = re.compile(r"\w+")


class BM25(Retriever):
    """Pages by the words they share with the query, rare words counting more (Lucene's BM25).

    Words are runs of letters and digits of any script, lower case, without accents. There is no stemming and
    no list of stop words. Pages without text score 0.
    """

    name = "bm25"

    def __init__(self, store: TextCollection) -> None:
        texts = store.texts()
        if not texts:
            raise RetrieverError(f"the page store at {store.uri} is empty; index documents first")
        words = [_words(text) for text in texts.values()]
        if not any(words):
            raise RetrieverError(
                f"none of the {len(texts)} pages in the page store at {store.uri} has a text layer, so BM25 "
                "has nothing to search; index with a late interaction retriever: "
                f"`ridgerank index DOCUMENTS --store {store.uri} --retriever NAME`"
            )
        self._ids = list(texts)
        self._row_of = {page_id: row for row, page_id in enumerate(self._ids)}
        self._uri = store.uri
        self._index = bm25s.BM25(method="lucene")
        self._index.index(words, show_progress=False)

    def search_many(self, queries: Sequence[str], k: int) -> list[list[Candidate]]:
        """Search for each query."""
        require_queries(queries, k)
        return [top_candidates(self._ids, self._scores(query), k) for query in queries]

    def score(self, query: str, page_ids: Sequence[str]) -> Floats:
        """Score given pages."""
        require_queries([query])
        missing = [page_id for page_id in page_ids if page_id not in self._row_of]
        if missing:
            raise StoreError(f"pages not in the page store at {self._uri}: {', '.join(missing[:5])}")
        return self._scores(query)[[self._row_of[page_id] for page_id in page_ids]]

    def _scores(self, query: str) -> Floats:
        known = [word for word in _words(query) if word in self._index.vocab_dict]
        if not known:
            return np.zeros(len(self._ids))
        return np.asarray(self._index.get_scores(known), dtype=np.float64)


def _words(text: str) -> list[str]:
    plain = text.casefold()
    if not plain.isascii():
        decomposed = unicodedata.normalize("NFKD", plain)
        plain = "".join(char for char in decomposed if not unicodedata.combining(char))
    return _WORD.findall(plain)
