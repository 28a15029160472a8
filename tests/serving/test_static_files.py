"""The page's files: served by name and nothing else, and holding to what their policy says."""

import re
from importlib.resources import files

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from ridgerank.serving.static_files import ADDRESSES, CONTENT_TYPES, FILES, PATHS, add_static_routes

FOLDER = files("ridgerank.serving") / "static"
TEXTS = {name: (FOLDER / name).read_text(encoding="utf-8") for name in (*ADDRESSES, *FILES)}
MARKUP = "".join(TEXTS[name] for name in ADDRESSES)


@pytest.fixture(scope="module")
def client() -> TestClient:
    app = FastAPI(docs_url=None)
    add_static_routes(app)
    return TestClient(app)


def test_the_list_names_every_file_of_the_folder() -> None:
    assert {entry.name for entry in FOLDER.iterdir()} == {*ADDRESSES, *FILES}


@pytest.mark.parametrize("name", [*ADDRESSES, *FILES])
def test_each_file_is_served_as_what_it_is(client: TestClient, name: str) -> None:
    answer = client.get(ADDRESSES.get(name, f"/page/{name}"))
    assert answer.status_code == 200
    assert answer.headers["content-type"] == CONTENT_TYPES[name.rpartition(".")[2]]
    assert answer.text == TEXTS[name]


@pytest.mark.parametrize(
    "path",
    ["/page/", "/page", "/page/index.html", "/page/../page.py", "/page/%2e%2e/page.py", "/page/..%2fpage.py"],
)
def test_nothing_else_is_served(client: TestClient, path: str) -> None:
    assert client.get(path).status_code == 404


def test_the_paths_that_need_no_key_are_those_of_the_page(client: TestClient) -> None:
    assert len(PATHS) == len(ADDRESSES) + len(FILES)
    assert {client.get(path).status_code for path in PATHS} == {200}


def test_the_policy_allows_neither_inline_script_nor_anything_from_elsewhere(client: TestClient) -> None:
    policy = dict(
        rule.split(" ", 1) for rule in client.get("/").headers["content-security-policy"].split("; ")
    )
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert "unsafe" not in " ".join(policy.values())


def test_no_file_reaches_for_the_network() -> None:
    for name, text in TEXTS.items():
        named = re.findall(r"(?:https?:)?//[\w.-]+\.\w+[^\s\"')]*", text)
        assert [url for url in named if not url.startswith("http://www.w3.org/")] == [], name


def test_markup_has_no_inline_script_style_or_handler() -> None:
    for name in ADDRESSES:
        assert re.findall(r"<script(?![^>]*\ssrc=)", TEXTS[name]) == []
        assert re.findall(r"<style|\sstyle=|\son\w+=", TEXTS[name]) == []


def test_every_part_a_file_asks_for_is_served() -> None:
    requested = set(re.findall(r'(?:src|href)="page/([^"]+)"', MARKUP))
    for name in FILES:
        requested |= set(re.findall(r'from "\./([^"]+)"', TEXTS[name]))
    assert requested == set(FILES)


def test_every_element_a_script_names_is_in_the_markup() -> None:
    there = set(re.findall(r'\sid="([^"]+)"', MARKUP))
    named = {
        element
        for name in FILES
        for element in re.findall(r'(?:byId|getElementById)\("([^"]+)"\)', TEXTS[name])
    }
    assert named, "the pattern finds nothing"
    assert named <= there


def test_every_label_points_at_a_control() -> None:
    controls = set(re.findall(r'<(?:input|button|output)[^>]*\sid="([^"]+)"', MARKUP))
    assert set(re.findall(r'<label[^>]*\sfor="([^"]+)"', MARKUP)) <= controls


def test_the_page_is_no_part_of_the_api(client: TestClient) -> None:
    assert client.get("/openapi.json").json()["paths"] == {}
