"""Searching within some documents, in a real browser."""

from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.browser.page import PageUnderTest
from tests.browser.server import ask

Answer = dict[str, Any]


@pytest.fixture
def documents(answer: Answer) -> list[str]:
    """The two documents of the store, by name: of 2019 and of 2020."""
    names = sorted({page["reference"].partition("#")[0] for page in answer["results"]})
    assert len(names) == 2, "nothing to leave out"
    return names


def parameters(page: PageUnderTest) -> dict[str, list[str]]:
    return parse_qs(urlsplit(page.driver.current_url).query)


def test_a_search_within_a_document_has_its_pages_alone(
    page: PageUnderTest, answer: Answer, documents: list[str]
) -> None:
    page.search_within(answer["query"], documents=f"{documents[1][:-5]}*, none-such.pdf")
    page.until_answered()
    assert page.documents() == {documents[1]}
    body = {"query": answer["query"], "k": 20, "top_n": 20, "documents": [documents[1]]}
    expected = ask(page.address, "/v1/search", body)["results"]
    assert page.order("after") == [result["page_id"] for result in expected]


def test_metadata_filters_and_its_keys_are_shown(
    page: PageUnderTest, answer: Answer, documents: list[str]
) -> None:
    page.search_within(answer["query"])
    page.until_answered()
    assert page.documents() == set(documents)
    assert page.by_id("filter-metadata").get_attribute("placeholder") == "year=2019"
    page.search_within(answer["query"], metadata="year=2020")
    page.until(lambda: page.documents() == {documents[1]})
    page.until_answered()


def test_the_address_holds_the_filter_and_back_takes_it_away(
    page: PageUnderTest, answer: Answer, documents: list[str]
) -> None:
    page.search(answer["query"])
    page.search_within(answer["query"], documents=documents[0], metadata="year=2019")
    page.until(lambda: page.documents() == {documents[0]})
    assert parameters(page) == {"q": [answer["query"]], "in": [documents[0]], "where": ["year=2019"]}
    assert "(2)" in page.by_id("filter-toggle").text
    page.weigh(0.25)
    assert parameters(page)["w"] == ["0.25"]
    page.driver.refresh()
    page.until_answered()
    assert page.documents() == {documents[0]}
    assert page.visible("filter")
    page.driver.back()
    page.until(lambda: page.documents() == set(documents))
    assert page.by_id("filter-documents").get_property("value") == ""


@pytest.mark.parametrize(
    ("filters", "words"),
    [
        ({"documents": "no-such*"}, "no stored page has documents no-such*"),
        ({"metadata": "year"}, "“year” is no condition. Write it as year=2019."),
    ],
)
def test_a_filter_that_fits_nothing_says_so_and_offers_everything(
    page: PageUnderTest, answer: Answer, documents: list[str], filters: dict[str, str], words: str
) -> None:
    page.expect_complaints("/v1/search - Failed to load resource")
    page.search_within(answer["query"], **filters)
    alert = page.until(lambda: [shown for shown in page.all("[role=alert]") if shown.text])[0]
    assert words in alert.text
    retry, everywhere = page.all("[role=alert] button")
    assert (retry.text, everywhere.text) == ("Try again", "Search all documents")
    everywhere.click()
    page.until_answered()
    assert page.documents() == set(documents)
    assert parameters(page) == {"q": [answer["query"]]}


def test_a_large_page_leads_to_a_search_within_its_document(page: PageUnderTest, answer: Answer) -> None:
    page.search(answer["query"])
    page.all("#after button.page")[0].click()
    page.until_heated()
    page.by_id("viewer-within").click()
    document = answer["results"][0]["reference"].partition("#")[0]
    page.until(lambda: page.documents() == {document})
    assert parameters(page)["in"] == [document]
