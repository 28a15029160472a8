"""The server's own faults: 500 without paths or reasons, and a readiness that tells the truth."""

import threading
import time
from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient

from ridgerank.errors import StoreError
from ridgerank.reranker.reranker import Reranker
from ridgerank.serving.http_errors import hide_paths
from ridgerank.serving.service import PageImages
from ridgerank.serving.settings import Limits
from ridgerank.store.page_store import PageStore
from tests.documents import pool_tasks
from tests.serving.conftest import SECONDS, Corpus, MakeService, client_of
from tests.serving.test_hostile import uri


def test_a_store_that_fails_is_the_servers_fault_and_it_is_not_ready(
    make_service: MakeService, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise StoreError(f"{corpus.store}/data/1.lance is gone")

    with client_of(make_service()) as client:
        body = {"query": corpus.queries[0], "k": 3}
        assert client.get("/readyz").status_code == 200
        with monkeypatch.context() as broken:
            broken.setattr(Reranker, "rank_lists", fail)
            broken.setattr(PageStore, "read_prefixes", fail)
            answer = client.post("/v1/search", json=body)
            ready = client.get("/readyz")
        assert (answer.status_code, answer.json()["code"]) == (500, "internal_error")
        assert (ready.status_code, ready.json()["code"]) == (503, "not_ready")
        assert client.get("/healthz").status_code == 200
        assert corpus.store not in answer.text + ready.text
        assert "lance" not in answer.text + ready.text


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("/home/u/models/qwen reads the text of pages", "qwen reads the text of pages"),
        ("pages not in the page store at ../a/../pages: x", "pages not in the page store at pages: x"),
        ("'/srv/a b/store/data' is gone", "'data' is gone"),
        ("s3://bucket/key/pages: refused", "pages: refused"),
        ("wanted 3/4 of it, and/or more", "wanted 3/4 of it, and/or more"),
    ],
)
def test_no_path_of_the_server_is_told(message: str, shown: str) -> None:
    assert hide_paths(message) == shown


@pytest.fixture
def impatient(make_service: MakeService) -> Iterator[TestClient]:
    limits = Limits(decode_seconds=0.01, render_seconds=0.01, deadline_seconds=SECONDS)
    with client_of(make_service(limits=limits)) as client:
        yield client


def test_an_image_that_takes_long_to_decode_and_a_page_that_takes_long_to_draw_are_given_up(
    impatient: TestClient, reranker: Reranker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ridgerank.serving.service.decode_page", pool_tasks.sleep_instead)
    monkeypatch.setattr("ridgerank.serving.service.draw_page", pool_tasks.sleep_instead)
    body = {"query": "x", "documents": [{"image": uri(b"image")}], "on_missing": "error"}
    late = impatient.post("/v1/rerank", json=body)
    assert (late.status_code, late.json()["code"]) == (422, "bad_document")
    assert "to decode" in late.json()["message"]
    page = impatient.get(f"/v1/pages/{reranker.store.page_ids()[0]}/image")
    assert (page.status_code, page.json()["code"]) == (422, "bad_document")
    assert impatient.get("/healthz").status_code == 200


def test_closing_does_not_wait_for_a_page_that_is_being_drawn(
    make_service: MakeService, reranker: Reranker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ridgerank.serving.service.draw_page", pool_tasks.sleep_instead)
    images = make_service(limits=Limits(render_seconds=10 * SECONDS)).page_images
    rendering = images.render(reranker.store, reranker.store.page_ids()[0])
    while not rendering.running():
        time.sleep(0.001)
    closing = threading.Thread(target=images.close)
    closing.start()
    closing.join(SECONDS / 2)
    assert not closing.is_alive()
    assert rendering.done()


def test_a_page_is_rendered_once_for_many_requests(
    client: TestClient, reranker: Reranker, monkeypatch: pytest.MonkeyPatch
) -> None:
    page_id, render, rendered = reranker.store.page_ids()[4], PageImages._render, []

    def counted(images: PageImages, store: PageStore, page_id: str) -> bytes:
        rendered.append(page_id)
        return render(images, store, page_id)

    monkeypatch.setattr(PageImages, "_render", counted)
    images = [client.get(f"/v1/pages/{page_id}/image").content for _ in range(3)]
    assert images[0] == images[1] == images[2]
    assert rendered == [page_id]
    missing = client.get(f"/v1/pages/{'0' * 64}/image")
    assert (missing.status_code, missing.json()["code"]) == (404, "page_not_found")
    assert len(rendered) == 1
