"""A store whose model reads text, in a real browser: the lines of a page that the query looked at."""

from collections.abc import Iterator

import pytest

from benchmarks import ridgerank
from tests.backbones.small_text_models import build_text
from tests.browser.chromium import Driver
from tests.browser.page import PageUnderTest, fresh_page
from tests.browser.server import ask, serving
from tests.calibrated_store import write_reports

QUERY = "profit of Norway"


@pytest.fixture(scope="module")
def text_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server over twenty pages that a small random model has read as text."""
    folder = tmp_path_factory.mktemp("text")
    model = build_text("llama", folder / "model").folder
    documents, store = write_reports(folder / "documents", pages=20), folder / "pages"
    ridgerank("index", str(documents), "--store", str(store), "--backbone", str(model))
    ridgerank("calibrate", "--store", str(store), "--count", "16", "--candidates", "8")
    with serving(store, log=folder / "log") as running:
        yield running


@pytest.fixture
def page(driver: Driver, text_address: str) -> Iterator[PageUnderTest]:
    with fresh_page(driver, text_address) as opened:
        yield opened
    driver.get("about:blank")


def open_first(page: PageUnderTest) -> None:
    page.search(QUERY)
    page.all("#after button.page")[0].click()
    page.until_heated()


def test_the_lines_with_most_attention_are_listed_and_outlined_on_the_page(page: PageUnderTest) -> None:
    open_first(page)
    [first, *_] = page.order("after")
    passages = ask(page.address, "/v1/explain", {"query": QUERY, "page": first})["passages"]
    best = sorted(passages, key=lambda passage: -passage["weight"])[:6]
    lines = page.all("#viewer-passages li")
    assert [line.text for line in lines] == [passage["text"].strip() for passage in best]
    assert "words and word parts" in page.text("viewer-shares")
    assert not page.visible("outline")
    page.run("arguments[0].dispatchEvent(new PointerEvent('pointerenter'))", lines[0])
    sheet, outline = page.by_id("sheet").rect, page.by_id("outline").rect
    left, top, right, bottom = best[0]["region"]
    assert outline["x"] - sheet["x"] == pytest.approx(left * sheet["width"], abs=2)
    assert outline["y"] - sheet["y"] == pytest.approx(top * sheet["height"], abs=2)
    assert outline["width"] == pytest.approx((right - left) * sheet["width"], abs=2)
    assert outline["height"] == pytest.approx((bottom - top) * sheet["height"], abs=2)
    page.by_id("viewer-next").click()
    assert not page.visible("outline")


def test_words_are_painted_where_they_stand(page: PageUnderTest) -> None:
    page.expect_complaints("willReadFrequently")  # it is this test that reads the canvas
    open_first(page)
    explained = ask(page.address, "/v1/explain", {"query": QUERY, "page": page.order("after")[0]})
    words: dict[tuple[float, ...], float] = {}
    for region, weight in zip(explained["regions"], explained["weights"], strict=True):
        if region is not None:
            words[tuple(region)] = words.get(tuple(region), 0.0) + weight
    left, top, right, bottom = max(words, key=lambda region: words[region])
    painted = (
        "const canvas = document.getElementById('heat');"
        "const [x, y] = [arguments[0] * canvas.width, arguments[1] * canvas.height];"
        "return canvas.getContext('2d').getImageData(x, y, 1, 1).data[3]"
    )
    assert page.run(painted, (left + right) / 2, (top + bottom) / 2) > 240
    assert page.run(painted, 0.005, 0.005) == 0, "the margin is painted"
