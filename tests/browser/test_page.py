"""The page in a real browser, over a real server, a small store and its calibration."""

from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest
from selenium.webdriver.common.keys import Keys

from ridgerank.fusion.standardize import fuse_scores
from ridgerank.ragged import Ragged
from tests.browser.page import PageUnderTest
from tests.browser.server import ask

Answer = dict[str, Any]


def pythons_order(answer: Answer, weight: float) -> list[str]:
    """The pages as `fusion` orders them at a weight, from the raw scores."""
    pages = sorted(answer["results"], key=lambda page: int(page["retriever_rank"]))
    retriever, readout = (
        np.array([page[name] for page in pages]) for name in ("retriever_score", "readout_score")
    )
    fused = fuse_scores(retriever, readout, weight, Ragged.of_lengths([len(pages)]))
    return [pages[row]["page_id"] for row in np.argsort(-fused, kind="stable")]


def test_a_search_shows_the_order_before_and_after(page: PageUnderTest, answer: Answer) -> None:
    page.search(answer["query"])
    results = answer["results"]
    assert page.order("after") == page.seen_order("after") == [result["page_id"] for result in results]
    retrieved = sorted(results, key=lambda result: int(result["retriever_rank"]))
    assert page.order("before") == page.seen_order("before") == [result["page_id"] for result in retrieved]
    entered = sum(result["retriever_rank"] > 5 for result in results[:5])
    assert page.text("changes-number") == f"{entered} of 5"
    assert page.text("live").startswith(f"{len(results)} pages.")
    assert results[0]["reference"] in page.text("live")


def test_every_row_shows_its_page_and_both_scores(page: PageUnderTest, answer: Answer) -> None:
    page.search(answer["query"])
    page.by_id("numbers").click()
    for row in page.all("#before li, #after li"):
        page.run("arguments[0].scrollIntoView({block: 'center'})", row)  # pictures load when they come near
    page.until(
        lambda: page.run(
            "return [...document.querySelectorAll('#columns img')].every((image) => image.naturalWidth > 0)"
        )
    )
    first = answer["results"][0]
    label = page.all("#after button")[0].accessible_name
    assert "rank 1, " in label
    assert first["reference"] in label
    assert f"Retriever score {first['retriever_score']:.2f}"[:18] in label
    shown = page.all("#after li")[0].text
    assert f"{abs(first['readout_score']):.2f}"[:4] in shown
    assert f"{abs(first['retriever_score']):.2f}"[:4] in shown


@pytest.mark.parametrize("weight", [0.0, 0.05, 0.25, 0.5, 0.75, 1.0])
def test_the_page_orders_as_the_package_does(page: PageUnderTest, answer: Answer, weight: float) -> None:
    page.search(answer["query"])
    page.weigh(weight)
    page.until_settled()
    assert page.order("after") == page.seen_order("after") == pythons_order(answer, weight)


def test_the_slider_reorders_and_the_button_or_as_many_steps_return_to_the_calibrated_weight(
    page: PageUnderTest, answer: Answer
) -> None:
    page.search(answer["query"])
    calibrated = page.order("after")
    page.by_id("weight").send_keys(Keys.HOME)
    page.until_settled()
    assert page.order("after") == page.order("before") != calibrated
    assert page.text("changes-number") == "0 of 5"
    page.until(lambda: page.text("live").startswith("Weight 0.00."))
    page.by_id("weight-return").click()
    page.until_settled()
    assert page.order("after") == calibrated
    assert page.text("weight-value") == f"{answer['weight']:.2f}"
    assert not page.by_id("weight-return").is_enabled()
    away, back = (Keys.LEFT, Keys.RIGHT) if answer["weight"] > 0.5 else (Keys.RIGHT, Keys.LEFT)
    page.by_id("weight").send_keys(away, away)
    assert page.by_id("weight-return").is_enabled()
    page.by_id("weight").send_keys(back, back)
    assert not page.by_id("weight-return").is_enabled()


def test_every_page_that_moved_has_a_curve_that_says_which_way(page: PageUnderTest, answer: Answer) -> None:
    page.search(answer["query"])
    kinds = page.run(
        "return Object.fromEntries([...document.querySelectorAll('#moves g')]"
        ".map((curve) => [curve.dataset.page, curve.classList[0]]))"
    )
    for result in answer["results"]:
        climbed = result["retriever_rank"] - result["rank"]
        assert kinds[result["page_id"]] == ("up" if climbed > 0 else "down" if climbed < 0 else "same")
    dashes = {
        kind: page.run(
            "const way = document.querySelector(`#moves .${arguments[0]} .way`);"
            "return way && getComputedStyle(way).strokeDasharray",
            kind,
        )
        for kind in ("up", "down")
    }
    assert dashes["up"] != dashes["down"], "the way is told by colour alone"


def test_a_page_opens_large_with_heat_where_the_query_looked(page: PageUnderTest, answer: Answer) -> None:
    page.expect_complaints("willReadFrequently")  # it is this test that reads the canvas
    page.search(answer["query"])
    page.all("#after button")[0].click()
    page.until_heated()
    first = answer["results"][0]
    assert page.text("viewer-title") == first["reference"]
    explained = ask(page.address, "/v1/explain", {"query": answer["query"], "page": first["page_id"]})
    hottest = int(np.argmax(explained["weights"]))
    left, top, right, bottom = explained["regions"][hottest]
    painted = (
        "const canvas = document.getElementById('heat');"
        "const [x, y] = [arguments[0] * canvas.width, arguments[1] * canvas.height];"
        "return [...canvas.getContext('2d').getImageData(x, y, 1, 1).data]"
    )
    red, green, blue, opacity = page.run(painted, (left + right) / 2, (top + bottom) / 2)
    assert opacity > 128, "the place looked at most is faint"
    assert red > green > blue
    page.by_id("heat-on").click()
    assert page.by_id("heat").value_of_css_property("opacity") == "0"
    page.press(Keys.ESCAPE)
    page.until(lambda: not page.visible("viewer"))


def test_a_page_whose_image_cannot_be_had_shows_its_thumbnail(page: PageUnderTest, answer: Answer) -> None:
    page.expect_complaints("/image")
    page.driver.execute_cdp_cmd("Network.enable", {})
    page.driver.execute_cdp_cmd("Network.setBlockedURLs", {"urls": ["*/image"]})
    try:
        page.search(answer["query"])
        page.all("#after button")[-1].click()
        page.until_heated()
        assert "thumbnail" in page.text("stage-state")
        assert str(page.by_id("page-image").get_property("currentSrc")).endswith("/thumbnail")
    finally:
        page.driver.execute_cdp_cmd("Network.setBlockedURLs", {"urls": []})


def test_the_keyboard_alone_goes_all_the_way(page: PageUnderTest, answer: Answer) -> None:
    page.open(q="something else")
    page.until_answered()
    page.press(Keys.TAB)
    assert page.focused().text == "Skip to the results"
    page.press("/", *answer["query"], Keys.ENTER)
    page.until(lambda: page.order("after") == pythons_order(answer, answer["weight"]))
    page.until_settled()
    for _ in range(12):
        if page.run("return document.getElementById('after').contains(document.activeElement)"):
            break
        page.press(Keys.TAB)
    assert "After, rank 1," in page.focused().accessible_name
    page.press(Keys.ARROW_DOWN)
    assert "After, rank 2," in page.focused().accessible_name
    page.press(Keys.ARROW_LEFT)
    assert answer["results"][1]["reference"] in page.focused().accessible_name
    assert page.focused().accessible_name.startswith("Before")
    page.press(Keys.ARROW_RIGHT, Keys.ENTER)
    page.until_heated()
    assert page.text("viewer-title") == answer["results"][1]["reference"]
    page.press(Keys.ARROW_RIGHT)
    page.until(lambda: page.text("viewer-title") == answer["results"][2]["reference"])
    page.until_heated()
    within = "return document.getElementById('viewer').contains(document.activeElement)"
    beside = "return document.activeElement === document.body"  # the browser's own bar is next
    for _ in range(8):
        page.press(Keys.TAB)
        assert page.run(within) or page.run(beside)
    page.press(Keys.ESCAPE)
    page.until(lambda: "After, rank 3," in page.focused().accessible_name)
    assert not page.visible("viewer")


def test_the_address_holds_query_and_weight(page: PageUnderTest, answer: Answer) -> None:
    page.search(answer["query"])
    page.weigh(0.25)
    parameters = parse_qs(urlsplit(page.driver.current_url).query)
    assert parameters == {"q": [answer["query"]], "w": ["0.25"]}
    page.open(q=answer["query"], w="0.25")
    page.until_answered()
    assert page.order("after") == pythons_order(answer, 0.25)
    page.open(q=answer["query"])
    page.until_answered()
    assert page.order("after") == pythons_order(answer, answer["weight"])


def test_the_back_button_brings_the_last_search_back(page: PageUnderTest, answer: Answer) -> None:
    page.search(answer["query"])
    page.search("something else")
    assert page.by_id("query").get_property("value") == "something else"
    page.driver.back()
    page.until(lambda: page.by_id("query").get_property("value") == answer["query"])
    page.until_answered()
    page.until(lambda: page.order("after") == pythons_order(answer, answer["weight"]))


def test_the_panel_reports_calibration_and_store(page: PageUnderTest) -> None:
    calibration, store = ask(page.address, "/v1/calibration"), ask(page.address, "/v1/store")
    page.by_id("report-toggle").click()
    page.until(lambda: len(page.all("#report .card")) == 4)
    headings = [heading.text for heading in page.all("#report h3")]
    assert headings[0].startswith(f"w = {calibration['weight']['weight']:.2f}")
    assert headings[1].startswith(f"r = {calibration['agreement']:.2f}")
    assert headings[2].startswith(f"{store['pages']}")
    low, high = calibration["weight"]["weight_interval"]
    assert f"95 % interval {low:.2f} to {high:.2f}" in page.text("report")
    page.until(lambda: page.run("return document.querySelector('#report img.picture').naturalWidth") > 500)
    assert calibration["summary"] in page.text("report")
    page.by_id("report-toggle").click()
    assert not page.visible("report")


def test_the_first_view_has_questions_to_try(page: PageUnderTest) -> None:
    examples = page.until(lambda: page.all(".examples a"))
    store = ask(page.address, "/v1/store")
    assert [example.text for example in examples] == store["examples"]
    examples[0].click()
    page.until_answered()
    assert page.by_id("query").get_property("value") == store["examples"][0]


def test_an_error_shows_what_the_server_said(page: PageUnderTest) -> None:
    page.expect_complaints("/v1/search - Failed to load resource")
    page.open(q="x" * 5000)
    alert = page.until(lambda: [shown for shown in page.all("[role=alert]") if shown.text])[0]
    assert "query" in alert.text
    assert not page.visible("columns")
    assert page.all("[role=alert] button")[0].text == "Try again"


def test_everything_comes_from_the_server_itself(page: PageUnderTest, answer: Answer) -> None:
    page.search(answer["query"])
    loaded = page.run("return performance.getEntriesByType('resource').map((entry) => entry.name)")
    assert len(loaded) > 10
    assert [name for name in loaded if not name.startswith(f"{page.address}/")] == []
