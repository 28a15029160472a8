"""The ranking by word counts alone: late interaction that cannot see which words belong together."""

from random import Random

from miniature.corpora import Corpus
from miniature.questions import content_words
from ridgerank.trec import Run


def counting_run(corpus: Corpus, *, seed: int = 0) -> Run:
    """Score every page by how many words of the question stand anywhere on it; ties are broken at random.

    This is MaxSim over perfectly read words: each word of the question is worth its best match, 1 or 0.
    """
    ties = Random(seed)
    words = {reference: {placed.word for placed in page.words} for reference, page in corpus.pages().items()}
    scored: dict[str, dict[str, float]] = {}
    for number, question in enumerate(corpus.questions):
        query_words = set(content_words(question.text))
        scored[corpus.query_id(number)] = {
            reference: len(query_words & page_words) + 0.5 * ties.random()
            for reference, page_words in words.items()
        }
    return Run.of_dict(scored)
