"""The web page as a user at a keyboard has it: the actions that the tests are written in."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar
from urllib.parse import urlencode

from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

from tests.browser.chromium import Driver, emulate, resize

T = TypeVar("T")
PATIENCE_SECONDS = 60
SETTLED = "return !document.querySelector('#after li[style*=translate]')"


class PageUnderTest:
    def __init__(self, driver: Driver, address: str) -> None:
        self.driver = driver
        self.address = address
        self._expected: tuple[str, ...] = ()

    def open(self, **query: str) -> None:
        """Follow a link to the page."""
        self.driver.get(f"{self.address}/?{urlencode(query)}")

    def search(self, query: str) -> None:
        """Type a query, press Enter, wait for the columns to come to rest."""
        box = self.by_id("query")
        box.clear()
        box.send_keys(query, "\n")
        self.until_answered()

    def search_within(self, query: str, *, documents: str = "", metadata: str = "") -> None:
        """Type a query and a filter, press Enter."""
        if not self.visible("filter"):
            self.by_id("filter-toggle").click()
        typed = (("query", query), ("filter-metadata", metadata), ("filter-documents", documents))
        for name, text in typed:
            if self.visible(name):
                self.by_id(name).clear()
                self.by_id(name).send_keys(text)
        self.by_id("filter-documents").send_keys("\n")

    def documents(self) -> set[str]:
        """The documents of the pages shown."""
        script = "return [...document.querySelectorAll('#after .name')].map((name) => name.textContent)"
        return {name.partition("#")[0] for name in self.run(script)}

    def until_answered(self) -> None:
        """Wait until both columns stand."""
        self.until(lambda: self.visible("columns") and bool(self.order("after")))
        self.until_settled()

    def until_settled(self) -> None:
        """Wait until no row moves any more."""
        self.until(lambda: bool(self.run(SETTLED)))

    def order(self, column: str) -> list[str]:
        """The page ids of a column, first to last, as a screen reader has them."""
        script = "return [...document.querySelectorAll(`#${arguments[0]} li`)].map((row) => row.dataset.page)"
        page_ids: list[str] = self.run(script, column)
        return page_ids

    def seen_order(self, column: str) -> list[str]:
        """The page ids of a column, top to bottom, as eyes have them."""
        script = (
            "return [...document.querySelectorAll(`#${arguments[0]} li`)]"
            ".map((row) => [row.getBoundingClientRect().top, row.dataset.page])"
        )
        return [page_id for _, page_id in sorted(map(tuple, self.run(script, column)))]

    def weigh(self, weight: float) -> None:
        """Drag the slider there."""
        self.run(
            "const slider = document.getElementById('weight'); slider.value = arguments[0];"
            "slider.dispatchEvent(new Event('input', {bubbles: true}));"
            "slider.dispatchEvent(new Event('change', {bubbles: true}))",
            weight,
        )

    def press(self, *keys: str) -> None:
        """Press keys, one after another, wherever the focus is."""
        actions = ActionChains(self.driver)
        for key in keys:
            actions.send_keys(key)
        actions.perform()

    def focused(self) -> WebElement:
        return self.driver.switch_to.active_element

    def until_heated(self) -> None:
        """Wait until the viewer shows a page and its attention."""
        self.until(lambda: self.visible("heat") and bool(self.text("viewer-shares")))

    def by_id(self, name: str) -> WebElement:
        return self.driver.find_element(By.ID, name)

    def all(self, selector: str) -> list[WebElement]:
        elements: list[WebElement] = self.driver.find_elements(By.CSS_SELECTOR, selector)
        return elements

    def text(self, name: str) -> str:
        text: str | None = self.by_id(name).get_attribute("textContent")
        return (text or "").strip()

    def visible(self, name: str) -> bool:
        return bool(self.by_id(name).is_displayed())

    def run(self, script: str, *arguments: object) -> Any:  # noqa: ANN401 (whatever the script returns)
        return self.driver.execute_script(script, *arguments)

    def until(self, holds: Callable[[], T]) -> T:
        """Wait for a condition, within a generous limit."""
        waiting = WebDriverWait(self.driver, PATIENCE_SECONDS, poll_frequency=0.1)
        held: T = waiting.until(lambda _: holds())
        return held

    def expect_complaints(self, *parts: str) -> None:
        """Expect messages with these words in the console."""
        self._expected = parts

    def complaints(self) -> Sequence[str]:
        """Warnings and errors of the console that were not expected."""
        entries = [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] != "INFO"]
        return [entry for entry in entries if not any(part in entry for part in self._expected)]


@contextmanager
def fresh_page(driver: Driver, address: str) -> Iterator[PageUnderTest]:
    """The page, fresh: light, wide, nothing remembered; afterwards its console must be silent."""
    emulate(driver)
    resize(driver, 1440, 1000)
    driver.get(address)
    driver.execute_script("localStorage.clear(); sessionStorage.clear()")
    driver.get_log("browser")  # what an earlier test left
    opened = PageUnderTest(driver, address)
    yield opened
    assert opened.complaints() == []
