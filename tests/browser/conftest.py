"""One small store, one server over it and one browser for all tests of the page."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.chromium import Driver, chromium
from tests.browser.corpus import make_store
from tests.browser.page import PageUnderTest, fresh_page
from tests.browser.server import ask, serving


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    return make_store(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="session")
def address(corpus: tuple[Path, list[str]], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(corpus[0], log=tmp_path_factory.mktemp("server") / "log") as running:
        yield running


@pytest.fixture(scope="session")
def answer(address: str, corpus: tuple[Path, list[str]]) -> dict[str, Any]:
    """The server's answer to a query whose first five pages the readout changes."""
    for query in corpus[1]:
        search_answer: dict[str, Any] = ask(address, "/v1/search", {"query": query, "k": 20, "top_n": 20})
        if any(page["retriever_rank"] > 5 for page in search_answer["results"][:5]):
            return search_answer
    raise AssertionError("no query's first five pages change: nothing to look at")


@pytest.fixture(scope="session")
def driver() -> Iterator[Driver]:
    with chromium() as opened:
        yield opened


@pytest.fixture
def page(driver: Driver, address: str) -> Iterator[PageUnderTest]:
    with fresh_page(driver, address) as opened:
        yield opened
