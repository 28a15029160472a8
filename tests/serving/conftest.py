"""A calibrated store of the miniature, and servers over it on loopback, each in a thread of its own."""

import base64
import io
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import uvicorn
from fastapi.testclient import TestClient
from PIL import Image
from typer.testing import CliRunner

from miniature import weights
from miniature.corpora import find_plan, make_corpus
from miniature.draw import draw_corpus
from ridgerank.cli.main import app as commands
from ridgerank.reranker.options import RerankerOptions
from ridgerank.reranker.reranker import Reranker
from ridgerank.serving.app import create_app
from ridgerank.serving.server import server_config
from ridgerank.serving.service import Service
from ridgerank.serving.settings import UNNAMED, Limits, ServeSettings
from ridgerank.serving.stores import ServedStore
from tests.backbones.small_text_models import build_text
from tests.calibrated_store import write_reports

HOME = "http://127.0.0.1"
SECONDS = 120.0
"""How long anything may take before a test fails: the machine may be busy."""
PATIENT_LIMITS = Limits(deadline_seconds=SECONDS)


@dataclass(frozen=True, slots=True)
class Corpus:
    """Where the documents, their store and some questions are."""

    documents: Path
    store: str
    queries: tuple[str, ...]


def command(*words: object) -> None:
    done = CliRunner().invoke(commands, [str(word) for word in words], catch_exceptions=False)
    assert done.exit_code == 0, done.output


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """Two documents of the miniature, indexed and calibrated as anyone would."""
    folder = tmp_path_factory.mktemp("miniature")
    for _ in draw_corpus(make_corpus(find_plan("alder")), folder):
        pass
    lines = (folder / "queries.jsonl").read_text().splitlines()[:20]
    (folder / "some.jsonl").write_text("\n".join(lines))
    documents = sorted((folder / "documents").glob("*.pdf"))[:2]
    store = folder / "pages"
    models = ("--backbone", weights("mini-qwen"), "--retriever", weights("mini-colqwen-small"))
    command("index", *documents, "--store", store, *models, "--preset", "paper")
    command("calibrate", "--store", store, "--queries", folder / "some.jsonl")
    return Corpus(folder / "documents", str(store), tuple(json.loads(line)["text"] for line in lines))


@pytest.fixture(scope="session")
def reranker(corpus: Corpus) -> Iterator[Reranker]:
    """The model in memory once, for all servers."""
    with Reranker.open(corpus.store) as opened:
        yield opened


MakeService = Callable[..., Service]


@pytest.fixture
def make_service(reranker: Reranker) -> Iterator[MakeService]:
    """Services over that model, or another, closed at the end (the model stays)."""
    services: list[Service] = []

    def make(over: Reranker = reranker, *, limits: Limits = PATIENT_LIMITS, **settings: object) -> Service:
        made = ServeSettings(limits=limits, **settings)  # type: ignore[arg-type]
        service = Service([served(over, judge=made.judge)], made)
        services.append(service)
        return service

    yield make
    for service in services:
        end(service)


@pytest.fixture
def client(make_service: MakeService) -> Iterator[TestClient]:
    """A client in the same process, of a server that encodes what is not stored."""
    with client_of(make_service()) as opened:
        yield opened


def served(reranker: Reranker, name: str = UNNAMED, *, judge: bool = False) -> ServedStore:
    """A store that is open already."""
    store = ServedStore(name, reranker.store.uri, RerankerOptions(), judge=judge)
    store.start(reranker)
    return store


def client_of(service: Service) -> TestClient:
    return TestClient(create_app(service, close=False), base_url=HOME, raise_server_exceptions=False)


@pytest.fixture(scope="session")
def text_reranker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reranker]:
    """A small random model that reads text, over a store of its own."""
    folder = tmp_path_factory.mktemp("text")
    model = build_text("llama", folder / "model").folder
    documents, store = write_reports(folder / "documents", pages=20), folder / "pages"
    command("index", documents, "--store", store, "--backbone", model)
    command("calibrate", "--store", store, "--count", 16, "--candidates", 8)
    with Reranker.open(store) as opened:
        yield opened


@pytest.fixture
def text_client(make_service: MakeService, text_reranker: Reranker) -> Iterator[TestClient]:
    """A client of a server whose model reads text."""
    with client_of(make_service(text_reranker)) as opened:
        yield opened


def end(service: Service) -> None:
    """Close a service; its model stays."""
    service.end_refresh()
    service.engine.close()
    service.page_images.close()


def png(colour: str = "white") -> str:
    """A page of one colour, as base64."""
    buffer = io.BytesIO()
    Image.new("RGB", (120, 160), colour).save(buffer, "PNG")
    return base64.b64encode(buffer.getvalue()).decode()


Serve = Callable[[Service], AbstractContextManager[str]]


@contextmanager
def serve(service: Service) -> Iterator[str]:
    """Run a service on a free port of loopback; its address."""
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    server = uvicorn.Server(server_config(create_app(service, close=False), service.settings))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    end = time.monotonic() + SECONDS
    while not server.started:
        assert time.monotonic() < end, "the server did not start"
        time.sleep(0.01)
    try:
        yield f"{HOME}:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(SECONDS)
        listening.close()
