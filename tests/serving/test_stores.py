"""A server takes up what changes beside it, and serves several stores to those who may use them."""

import shutil
import threading
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from ridgerank.calibration.artifact import Calibration
from ridgerank.errors import ServingError, StoreError
from ridgerank.fusion.weight import user_estimate
from ridgerank.indexing.index import index_documents
from ridgerank.reranker.options import RerankerOptions, open_calibrated
from ridgerank.reranker.reranker import Reranker
from ridgerank.serving import stores
from ridgerank.serving.app import create_app
from ridgerank.serving.middleware import OPEN_PATHS
from ridgerank.serving.service import Service
from ridgerank.serving.settings import ServeSettings
from ridgerank.serving.stores import ServedStore, open_stores
from ridgerank.store.judgements import Judgements
from ridgerank.store.maintenance import remove_documents
from ridgerank.store.sidecar import calibrations_folder
from ridgerank.store.store_writer import READER_GRACE
from tests.calibrated_store import write_report
from tests.serving.conftest import HOME, PATIENT_LIMITS, SECONDS, Corpus, client_of, end
from tests.serving.test_load import Held, held, until

__all__ = ["held"]
QUERY = "profit of Norway rose"
STATE = "X-RidgeRank-State"


@pytest.fixture
def store(text_reranker: Reranker, tmp_path: Path) -> str:
    """A copy of a store, to be changed."""
    return str(shutil.copytree(text_reranker.store.uri, tmp_path / "store"))


@pytest.fixture
def service(text_reranker: Reranker, store: str) -> Iterator[Service]:
    served = ServedStore("default", store, RerankerOptions())
    served.start(text_reranker.over(open_calibrated(store)))
    made = Service([served], ServeSettings(limits=PATIENT_LIMITS, hosts=None))
    yield made
    end(made)


def reweigh(store: str, weight: float) -> None:
    calibration = Calibration.load(calibrations_folder(store))
    replace(calibration, weight=user_estimate(weight)).save(calibrations_folder(store))


def found(client: TestClient) -> set[str]:
    answer = client.post("/v1/search", json={"query": QUERY, "k": 100, "top_n": 100})
    assert answer.status_code == 200, answer.text
    return {result["reference"].partition("#")[0] for result in answer.json()["results"]}


def test_pages_and_weights_that_change_are_served_without_a_restart(
    service: Service, store: str, text_reranker: Reranker, tmp_path: Path
) -> None:
    with client_of(service) as client:
        longest = max(stores.REFRESH_SECONDS, stores._REMOTE_REFRESH_SECONDS)
        assert READER_GRACE.total_seconds() > 10 * longest
        version = client.get("/v1/store").headers[STATE]
        [gone] = [
            page
            for page in text_reranker.store.page_ids()
            if text_reranker.store.reference(page) == "report-1.pdf#1"
        ]
        assert client.get(f"/v1/pages/{gone}/thumbnail").status_code == 200
        write_report(tmp_path / "new.pdf", pages=2, seed=9)
        index_documents([tmp_path / "new.pdf"], store, text_reranker.backbone)
        until(lambda: "new.pdf" in found(client))
        for name in ("report-1.pdf", "new.pdf"):
            remove_documents(store, [name])
        until(lambda: found(client) == {"report-0.pdf"})
        assert client.get(f"/v1/pages/{gone}/thumbnail").status_code == 404
        assert client.get("/readyz").status_code == 200
        reweigh(store, 0.25)
        until(lambda: client.post("/v1/search", json={"query": QUERY}).json()["weight"] == 0.25)
        assert client.get("/v1/store").headers[STATE] != version


def test_a_request_is_answered_from_the_state_it_began_with(service: Service, store: str, held: Held) -> None:
    [served] = service.stores.values()
    before = served.state
    with client_of(service) as client:
        answers = []
        asking = threading.Thread(
            target=lambda: answers.append(
                client.post("/v1/search", json={"query": QUERY, "k": 20, "top_n": 20, "lines": True})
            )
        )
        asking.start()
        assert held.entered.acquire(timeout=SECONDS)
        remove_documents(store, ["report-1.pdf"])
        reweigh(store, 0.125)
        until(lambda: served.state.reranker.calibration.weight.weight == 0.125)
        held.leave.release(10)
        asking.join(SECONDS)
        [answer] = answers
        assert answer.headers[STATE] == f"default/{before.version}"
        assert answer.json()["weight"] == before.reranker.calibration.weight.weight
        assert len(answer.json()["results"]) == 20
        assert client.get("/v1/store").headers[STATE] == f"default/{served.state.version}"
        assert found(client) == {"report-0.pdf"}


def test_a_reader_that_misses_a_file_opens_the_store_again(
    service: Service, store: str, text_reranker: Reranker
) -> None:
    service.end_refresh()
    page = text_reranker.store.find("report-0.pdf#1")
    with client_of(service) as client:
        version = client.get("/v1/store").headers[STATE]
        remove_documents(store, ["report-1.pdf"])
        for path in set(Path(store, "data").iterdir()) - current_files(store):
            path.unlink()
        answer = client.get(f"/v1/pages/{page}/thumbnail")
        assert answer.status_code == 200
        assert answer.headers[STATE] != version
        assert found(client) == {"report-0.pdf"}
        assert client.get("/readyz").status_code == 200


def current_files(store: str) -> set[Path]:
    """The data files of the present version."""
    with open_calibrated(store).pages as pages:
        files = [file.path for fragment in pages.fragments() for file in fragment.metadata.files]
    return {Path(store, "data", path) for path in files}


@pytest.fixture(scope="module")
def several(text_reranker: Reranker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Two stores of different documents, and a third that cannot be opened."""
    folder = tmp_path_factory.mktemp("several")
    uris = {name: str(folder / name) for name in ("first", "second", "third")}
    for name, removed in (("first", "report-1.pdf"), ("second", "report-0.pdf")):
        shutil.copytree(text_reranker.store.uri, uris[name])
        remove_documents(uris[name], [removed])
    reweigh(uris["second"], 0.375)
    keys = {"k" * 20: None, "1" * 20: frozenset({"first"}), "2" * 20: frozenset({"second", "third"})}
    settings = ServeSettings(limits=PATIENT_LIMITS, hosts=None, keys=keys, judge=True)
    service = Service(open_stores(uris, RerankerOptions(), judge=True), settings)
    yield service
    end(service)


def test_stores_share_a_model_and_one_that_fails_takes_no_other_down(
    several: Service, text_reranker: Reranker
) -> None:
    first, second, third = several.stores.values()
    assert first.state.reranker.backbone is second.state.reranker.backbone
    with client_of(several) as client:
        client.headers["Authorization"] = f"Bearer {'k' * 20}"
        weights = {}
        for name, document in (("first", "report-0.pdf"), ("second", "report-1.pdf")):
            body = {"query": QUERY, "k": 20, "top_n": 20}
            in_path = client.post(f"/stores/{name}/v1/search", json=body)
            in_body = client.post("/v1/search", json={**body, "store": name})
            assert in_path.json()["results"] == in_body.json()["results"]
            assert in_path.headers[STATE].startswith(f"{name}/")
            assert {each["reference"].partition("#")[0] for each in in_path.json()["results"]} == {document}
            assert client.get(in_path.json()["results"][0]["thumbnail_url"]).status_code == 200
            weights[name] = in_path.json()["weight"]
        assert weights["second"] == 0.375 != weights["first"]
        assert client.post("/v1/search", json={"query": QUERY}).json()["code"] == "store_missing"
        assert (
            client.post("/stores/third/v1/search", json={"query": QUERY}).json()["code"]
            == "store_unavailable"
        )
        assert client.get("/readyz").status_code == 200
        [model] = client.get("/v1/models").json()["data"]
        assert [each["name"] for each in model["stores"]] == ["first", "second", "third"]
        assert 'ridgerank_answers_total{outcome="reranked",store="second"}' in client.get("/metrics").text
        shutil.copytree(text_reranker.store.uri, third.uri)
        until(lambda: third.is_open)
        assert client.post("/stores/third/v1/search", json={"query": QUERY}).status_code == 200
        shutil.rmtree(third.uri)


def test_a_store_of_another_model_is_refused(text_reranker: Reranker, corpus: Corpus) -> None:
    with pytest.raises(ServingError, match="share one model and its settings, and second has others"):
        open_stores({"first": text_reranker.store.uri, "second": corpus.store}, RerankerOptions())


def test_a_store_beside_which_nothing_can_be_kept_is_said_before_the_model_is_loaded(
    text_reranker: Reranker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(judgements: Judgements) -> None:
        raise StoreError("judgements cannot be kept")

    monkeypatch.setattr(Judgements, "require_writable", refuse)
    monkeypatch.setattr(RerankerOptions, "open", lambda *given, **more: pytest.fail("a model is loaded"))
    with pytest.raises(StoreError, match="cannot be kept"):
        open_stores({"default": text_reranker.store.uri}, RerankerOptions(), judge=True)


KEYS: dict[str, set[str]] = {
    "": set(),
    "wrong": set(),
    "k" * 20: {"first", "second"},
    "1" * 20: {"first"},
    "2" * 20: {"second"},
}
"""Key → the stores it may use."""


def cases(app: FastAPI) -> Iterator[tuple[str, str, bool]]:
    """Every method and path of the server; whether the store is named in the path, or else in the body."""
    yield from (("GET", path, True) for path in ("/", "/page/page.js", "/docs", "/openapi.json", "/nowhere"))
    for path, methods in app.openapi()["paths"].items():
        for method in methods:
            yield from ((method.upper(), path, named) for named in {True, method == "get"})


def body_for(path: str, page_id: str) -> dict[str, object]:
    bodies: dict[str, dict[str, object]] = {
        "explain": {"query": QUERY, "page": page_id},
        "judgements": {"query": QUERY, "page": page_id, "grade": None},
        "search": {"query": QUERY, "k": 2},
        "score": {"queries": QUERY, "documents": [page_id]},
        "rerank": {"query": QUERY, "documents": [page_id]},
    }
    return bodies[path.rpartition("/")[2]]


def test_no_key_gets_through_to_a_store_that_is_not_its_own(several: Service) -> None:
    app = create_app(several, close=False)
    pages = {name: several.stores[name].state.reranker.store.page_ids()[0] for name in ("first", "second")}
    seen = 0
    with TestClient(app, base_url=HOME, raise_server_exceptions=False) as client:
        for (method, template, in_path), name, key in product(cases(app), pages, KEYS):
            seen += 1
            path = template.format(page_id=pages[name])
            sent: dict[str, object] = {"params": {"query": QUERY}}
            if method == "POST":
                body = body_for(path, pages[name])
                sent = {"json": body if in_path else {**body, "store": name}}
            address = f"/stores/{name}{path}" if in_path else path
            headers = {"Authorization": f"Bearer {key}"}
            answer = client.request(method, address, headers=headers, **sent)  # type: ignore[arg-type]
            status = answer.status_code
            case = (method, address, key, name, status, answer.text[:200])
            assert pages["second" if name == "first" else "first"] not in answer.text, case
            if path in OPEN_PATHS or path.startswith("/page/"):
                assert (status, STATE in answer.headers) == (200, False), case
            elif not KEYS[key]:
                assert status == 401, case
            elif path == "/nowhere":
                assert status == 404, case
            elif path == "/metrics":
                assert status == (200 if len(KEYS[key]) == 2 else 403), case
            elif path == "/v1/models":
                listed = {each["name"] for each in answer.json()["data"][0]["stores"]}
                assert listed - {"third"} == KEYS[key], case
            elif name in KEYS[key]:
                assert status == 200 or (status == 404 and path.endswith("/picture")), case
                assert answer.headers[STATE].startswith(f"{name}/"), case
            else:
                assert (status, answer.json()["code"]) == (404, "no_such_store"), case
                assert pages[name] not in answer.text, case
                assert STATE not in answer.headers, case
    assert seen > 250
