"""Two drawn pages for the shipped models, which read nothing but what this package draws."""

from collections.abc import Mapping
from itertools import permutations
from pathlib import Path
from tempfile import TemporaryDirectory

from ridgerank.calibration.model_check import CheckPages
from ridgerank.documents.pages import read_pages
from ridgerank.errors import MiniatureError
from ridgerank.miniature.corpora import Corpus, find_plan, make_corpus
from ridgerank.miniature.draw import draw_document
from ridgerank.page_sizing import PixelBudget
from ridgerank.records import Page

_CORPUS = "alder"
_QUERIES_PER_PAGE = 2


def draw_check_pages(max_pixels: PixelBudget) -> CheckPages:
    """Two pages of a drawn corpus, each the only one of them that answers two of its queries."""
    corpus = make_corpus(find_plan(_CORPUS))
    references, queries = choose_check_pages(corpus)
    planned = corpus.pages()
    with TemporaryDirectory() as folder:
        path = Path(folder, "check.pdf")
        path.write_bytes(draw_document([planned[reference] for reference in references]))
        pages = [page for page in read_pages([path], max_pixels=max_pixels) if isinstance(page, Page)]
    if len(pages) != len(references):
        raise MiniatureError(f"{len(pages)} of {len(references)} drawn pages can be read; wanted all of them")
    return CheckPages(tuple(pages), queries)


def choose_check_pages(corpus: Corpus) -> tuple[tuple[str, str], tuple[tuple[str, int], ...]]:
    """References of two pages, and the queries with the number of the page that answers; the first fit."""
    answered: dict[str, list[int]] = {}
    for number, grades in enumerate(corpus.grades):
        for reference in grades:
            answered.setdefault(reference, []).append(number)
    for first, second in permutations(sorted(answered), 2):
        numbers = [_only(answered, page, other) for page, other in ((first, second), (second, first))]
        if all(len(each) >= _QUERIES_PER_PAGE for each in numbers):
            queries = [
                (corpus.questions[number].text, page)
                for page, each in enumerate(numbers)
                for number in each[:_QUERIES_PER_PAGE]
            ]
            return (first, second), tuple(queries)
    raise MiniatureError(f"no two pages of {corpus.name} answer two queries each that the other does not")


def _only(answered: Mapping[str, list[int]], page: str, other: str) -> list[int]:
    return [number for number in answered[page] if number not in answered[other]]
