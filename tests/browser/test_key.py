"""A server that wants a key: the page asks for it, and sends it with everything, pictures too."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.chromium import Driver
from tests.browser.page import PageUnderTest
from tests.browser.server import serving

KEY = "a-key-of-this-test-7f3a"


@pytest.fixture
def locked(driver: Driver, corpus: tuple[Path, list[str]], tmp_path: Path) -> Iterator[PageUnderTest]:
    keys = tmp_path / "keys"
    keys.write_text(f"{KEY}\n")
    with serving(corpus[0], "--api-key-file", str(keys), log=tmp_path / "log") as address:
        driver.get(address)
        yield PageUnderTest(driver, address)
        driver.execute_script("sessionStorage.clear()")


def test_the_page_asks_for_a_key_until_it_fits(locked: PageUnderTest, corpus: tuple[Path, list[str]]) -> None:
    locked.until(lambda: locked.visible("key"))
    locked.by_id("key-value").send_keys("not-the-key", "\n")
    locked.until(lambda: "refused" in locked.text("key-text") and locked.visible("key"))
    locked.by_id("key-value").send_keys(KEY, "\n")
    locked.until(lambda: len(locked.all("#report .card")) == 4)
    locked.search(corpus[1][0])
    locked.until(lambda: locked.run("return document.querySelector('#after img').naturalWidth > 0"))
    locked.all("#after button")[0].click()
    locked.until_heated()
    assert locked.run("return Object.values(localStorage).includes(arguments[0])", KEY) is False
    locked.expect_complaints("401")
    assert locked.complaints() == []
