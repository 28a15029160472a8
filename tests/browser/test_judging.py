"""People judge pages in a real browser: what they click is what lies beside the store."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from ridgerank.trec import read_qrels
from tests.browser.chromium import Driver
from tests.browser.page import PageUnderTest, fresh_page
from tests.browser.server import serving


@pytest.fixture(scope="module")
def judged_store(corpus: tuple[Path, list[str]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(shutil.copytree(corpus[0], tmp_path_factory.mktemp("judged") / "pages"))


@pytest.fixture
def page(
    judged_store: Path, driver: Driver, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PageUnderTest]:
    log = tmp_path_factory.mktemp("judging") / "log"
    with serving(judged_store, "--judge", log=log) as address:
        with fresh_page(driver, address) as opened:
            yield opened
        driver.get("about:blank")


def test_a_click_is_a_judgement_and_undo_takes_it_back(
    page: PageUnderTest, judged_store: Path, corpus: tuple[Path, list[str]]
) -> None:
    qrels, record = (judged_store / "judgements" / name for name in ("qrels.trec", "judgements.jsonl"))
    page.search(corpus[1][0])
    page.by_id("judge-name").send_keys("Ada")
    page.all("#after li")[0].find_elements("css selector", ".grade")[0].click()
    page.until(lambda: "1 judgement" in page.text("judge-count"))
    page.all("#after li")[1].find_elements("css selector", ".grade")[2].click()
    page.until(lambda: "2 judgements" in page.text("judge-count"))
    [grades] = read_qrels(qrels).values()
    assert sorted(grades.values()) == [0, 2]
    said = [json.loads(line) for line in record.read_text().splitlines()]
    assert {line["judge"] for line in said} == {"Ada"}
    assert page.text("judge-weight")
    assert page.all("#judge-next button")
    page.by_id("judge-undo").click()
    page.until(lambda: "1 judgement" in page.text("judge-count"))
    [grades] = read_qrels(qrels).values()
    assert list(grades.values()) == [2]
