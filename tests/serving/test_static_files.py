"""The page's files: served by name and nothing else, and holding to what their policy says."""

from importlib.resources import files

from fastapi.testclient import TestClient

from tests.serving.conftest import MakeService, client_of

FOLDER = files("ridgerank.serving") / "static"
TEXTS = {entry.name: entry.read_text(encoding="utf-8") for entry in FOLDER.iterdir()}
MARKUP = TEXTS["index.html"]


def test_each_file_is_served_as_what_it_is_and_without_a_key(make_service: MakeService) -> None:
    kinds = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
    with client_of(make_service(keys={"k" * 32: None})) as client:
        for name, text in TEXTS.items():
            answer = client.get("/" if name == "index.html" else f"/page/{name}")
            assert answer.status_code == 200
            assert answer.headers["content-type"].startswith(kinds[name.rpartition(".")[2]])
            assert answer.text == text
        assert client.get("/docs").status_code == 200
        assert client.get("/v1/store").status_code == 401


def test_the_policy_allows_neither_inline_script_nor_anything_from_elsewhere(client: TestClient) -> None:
    policy = dict(
        rule.split(" ", 1) for rule in client.get("/").headers["content-security-policy"].split("; ")
    )
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert "unsafe" not in " ".join(policy.values())
