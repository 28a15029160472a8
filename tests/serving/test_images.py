"""Page images: rendered when they are needed, and not for a caller who has them."""

from collections.abc import Callable

import pytest
from fastapi.testclient import TestClient

from ridgerank.reranker.reranker import Reranker
from ridgerank.serving.images import EncodedImage, PageImages
from ridgerank.store.page_store import PageStore


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The page ids that were rendered, or whose thumbnail was read."""
    page_ids: list[str] = []

    def counting(read: Callable[[PageImages, PageStore, str], EncodedImage]) -> Callable[..., EncodedImage]:
        def counted(images: PageImages, store: PageStore, page_id: str) -> EncodedImage:
            page_ids.append(page_id)
            return read(images, store, page_id)

        return counted

    for name in ("_render", "thumbnail"):
        monkeypatch.setattr(PageImages, name, counting(getattr(PageImages, name)))
    return page_ids


@pytest.mark.parametrize("kind", ["image", "thumbnail"])
def test_a_caller_who_has_the_image_costs_no_rendering(
    client: TestClient, reranker: Reranker, reads: list[str], kind: str
) -> None:
    page_id, other = reranker.store.page_ids()[1:3]
    etag = client.get(f"/v1/pages/{page_id}/{kind}").headers["etag"]
    assert reads == [page_id]
    # The tag of another page is known before that page was ever rendered.
    other_etag = etag.replace(page_id, other)
    for header in (other_etag, f"W/{other_etag}", f'"something", {other_etag}', "*"):
        answer = client.get(f"/v1/pages/{other}/{kind}", headers={"If-None-Match": header})
        assert answer.status_code == 304
        assert (answer.headers["etag"], answer.content) == (other_etag, b"")
    assert reads == [page_id]
    assert client.get(f"/v1/pages/{other}/{kind}", headers={"If-None-Match": etag}).status_code == 200
    assert reads == [page_id, other]


@pytest.mark.parametrize("kind", ["image", "thumbnail"])
def test_a_page_that_is_not_stored_is_not_found_whatever_the_caller_has(
    client: TestClient, reads: list[str], kind: str
) -> None:
    answer = client.get(f"/v1/pages/{'0' * 64}/{kind}", headers={"If-None-Match": "*"})
    assert answer.status_code == 404
    assert answer.json()["code"] == "page_not_found"
    assert reads == []


def test_a_page_is_rendered_once_for_many_requests(
    client: TestClient, reranker: Reranker, reads: list[str]
) -> None:
    page_id = reranker.store.page_ids()[4]
    images = [client.get(f"/v1/pages/{page_id}/image").content for _ in range(3)]
    assert images[0] == images[1] == images[2]
    assert reads == [page_id]
