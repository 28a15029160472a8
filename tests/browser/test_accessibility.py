"""Colours, widths and names: the page for every screen, and for those who hear it."""

from itertools import pairwise
from typing import Any

import pytest

from tests.browser.chromium import emulate, resize
from tests.browser.page import PageUnderTest

Answer = dict[str, Any]


def test_dark_follows_the_system_until_told_otherwise(page: PageUnderTest, answer: Answer) -> None:
    def brightness() -> float:
        colour = page.run("return getComputedStyle(document.body).backgroundColor")
        channels = [float(part) for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
        return sum(channels) / 3

    assert brightness() > 200
    emulate(page.driver, dark=True)
    assert brightness() < 60
    page.by_id("theme").click()
    assert page.by_id("theme").accessible_name == "Theme: Light"
    assert brightness() > 200
    page.open(q=answer["query"])
    assert brightness() > 200, "the choice was forgotten"
    emulate(page.driver)
    page.by_id("theme").click()
    assert brightness() < 60


@pytest.mark.parametrize("width", [320, 390, 768, 1100, 1440])
def test_nothing_sticks_out_at_any_width(page: PageUnderTest, answer: Answer, width: int) -> None:
    resize(page.driver, width, 800)
    page.search(answer["query"])
    page.by_id("report-toggle").click()
    page.by_id("filter-toggle").click()
    assert page.run("return document.scrollingElement.scrollWidth") <= width
    assert page.visible("weight")
    page.until_settled()
    tops = page.run("return [...document.querySelectorAll('#after li')].map((row) => row.offsetTop)")
    assert all(lower > upper for upper, lower in pairwise(tops))


def test_every_control_has_a_name_a_screen_reader_can_say(page: PageUnderTest, answer: Answer) -> None:
    page.search(answer["query"])
    page.by_id("report-toggle").click()
    page.by_id("filter-toggle").click()
    nameless_outside = nameless(page)
    page.all("#after button")[0].click()
    page.until_heated()
    assert nameless_outside + nameless(page) == []


def nameless(page: PageUnderTest) -> list[str]:
    """Controls and pictures without a name, by the browser's own accessibility tree."""
    control_roles = {"button", "searchbox", "slider", "checkbox", "link", "textbox", "img", "image", "dialog"}
    tree = page.driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    controls = [node for node in tree if not node["ignored"] and node["role"]["value"] in control_roles]
    assert len(controls) > 5, "the tree is empty"
    return [node["role"]["value"] for node in controls if not node["name"]["value"].strip()]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_text_stands_out_as_wcag_aa_asks(page: PageUnderTest, answer: Answer, dark: bool) -> None:
    emulate(page.driver, dark=dark)
    page.search(answer["query"])
    page.by_id("report-toggle").click()
    page.by_id("filter-toggle").click()
    page.weigh(0.3)
    page.until_settled()
    faint = page.run(CONTRAST)
    page.all("#after button")[0].click()
    page.until_heated()
    assert faint + page.run(CONTRAST) == []


CONTRAST = """
const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
const rgba = (colour) => {
  canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
  return [...canvas.getImageData(0, 0, 1, 1).data];
};
const light = (colour) => {
  const [r, g, b] = rgba(colour).map((part) => part / 255)
    .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const ground = (element) => {
  for (let at = element; at; at = at.parentElement) {
    const colour = getComputedStyle(at).backgroundColor;
    if (rgba(colour)[3] === 255) return colour;
  }
  return 'white';
};
const open = document.querySelector('dialog[open]') ?? document.body;
const walker = document.createTreeWalker(open, NodeFilter.SHOW_TEXT);
const faint = [];
let seen = 0;
while (walker.nextNode()) {
  const element = walker.currentNode.parentElement;
  const style = getComputedStyle(element);
  const idle = element.closest(':disabled, .unseen, .skip, noscript, dialog:not([open])');
  if (!walker.currentNode.data.trim() || idle || !element.getClientRects().length) continue;
  seen += 1;
  const ink = element instanceof SVGElement ? style.fill : style.color;
  const [low, high] = [light(ink), light(ground(element))].sort((a, b) => a - b);
  const ratio = (high + 0.05) / (low + 0.05);
  const size = parseFloat(style.fontSize);
  const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
  if (ratio < (large ? 3 : 4.5)) faint.push(`${walker.currentNode.data.trim()}: ${ratio.toFixed(2)}`);
}
if (seen < 10) faint.push(`only ${seen} texts seen`);
return faint;
"""
