"""Judgements through the API: kept before the model runs, in pages, and in a thread of their own."""

import json
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from ridgerank.reranker.options import RerankerOptions, open_calibrated
from ridgerank.reranker.reranker import Reranker
from ridgerank.serving.service import Service
from ridgerank.serving.settings import ServeSettings
from ridgerank.serving.stores import ServedStore
from ridgerank.store.judgements import Judgement, Judgements
from tests.serving.conftest import PATIENT_LIMITS, client_of, end
from tests.serving.test_load import Held, held, until

__all__ = ["held"]
QUERY = "profit of Norway rose"


@pytest.fixture
def folder(text_reranker: Reranker, tmp_path: Path) -> Path:
    """A copy of a store, to be judged."""
    return Path(shutil.copytree(text_reranker.store.uri, tmp_path / "store"), "judgements")


@pytest.fixture
def judge(text_reranker: Reranker, folder: Path) -> Iterator[TestClient]:
    store = ServedStore("default", str(folder.parent), RerankerOptions(), judge=True)
    store.start(text_reranker.over(open_calibrated(str(folder.parent))))
    service = Service([store], ServeSettings(limits=PATIENT_LIMITS, hosts=None, judge=True))
    with client_of(service) as client:
        yield client
    end(service)


def test_a_click_is_on_disk_before_the_model_has_run(
    judge: TestClient, folder: Path, held: Held, text_reranker: Reranker
) -> None:
    page = text_reranker.store.page_ids()[0]
    body = {"query": QUERY, "page": page, "grade": 2, "judge": "ada"}
    answer = judge.post("/v1/judgements", json=body).json()
    assert (answer["own"], answer["merged"], answer["pages"]) == ({page: 2}, {page: 2}, 1)
    assert json.loads((folder / "judgements.jsonl").read_text())["grade"] == 2
    assert not (folder / "lists.jsonl").exists()
    held.leave.release()
    until((folder / "lists.jsonl").exists)
    assert judge.get("/v1/judgements", params={"query": QUERY}).json()["next_pages"]
    assert judge.post("/v1/judgements", json={**body, "grade": None}).json()["own"] == {}
    assert len(held.batches) == 1, "the model ran again for a query that is known"


def test_many_judgements_are_read_once_and_sent_in_pages(
    judge: TestClient, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = {"query": QUERY, "reference": "report.pdf#1", "grade": 1, "judge": "ada", "time": ""}
    lines = [json.dumps({**row, "page_id": f"{number:064x}"}) for number in range(3000)]
    (folder / "judgements.jsonl").write_text("\n".join(lines))
    threads: list[str] = []

    def read(judgements: Judgements) -> list[Judgement]:
        threads.append(threading.current_thread().name)
        return [Judgement(**json.loads(line)) for line in lines]

    monkeypatch.setattr(Judgements, "read", read)
    seen: set[str] = set()
    for offset in range(0, 3000, 200):
        answer = judge.get("/v1/judgements", params={"query": QUERY, "judge": "ada", "offset": offset}).json()
        assert set(answer["own"]) == set(answer["merged"])
        seen |= set(answer["merged"])
    assert (len(seen), answer["pages"], answer["judgements"]) == (3000, 3000, 3000)
    assert len(threads) == 1
    assert threads[0].startswith("ridgerank-judging")


def test_a_record_that_is_full_or_cannot_be_written_is_said(
    judge: TestClient, folder: Path, text_reranker: Reranker, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = {"query": QUERY, "page": text_reranker.store.page_ids()[0], "grade": 2}
    assert judge.post("/v1/judgements", json=body).status_code == 200
    monkeypatch.setattr("ridgerank.serving.judging.MAX_BYTES", 1)
    full = judge.post("/v1/judgements", json=body)
    assert (full.status_code, full.json()["code"]) == (409, "read_only")
    assert judge.get("/v1/judgements", params={"query": QUERY}).json()["judgements"] == 1
