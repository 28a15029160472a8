"""`ridgerank serve`: closed by default, and an orderly start and end."""

import os
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from ridgerank.backbones.base import Backbone
from ridgerank.cli.main import app
from ridgerank.errors import ServingError
from ridgerank.serving.server import bind
from ridgerank.serving.settings import read_keys
from ridgerank.store.page_store import PageStore
from ridgerank.store.sidecar import calibrations_folder
from tests.browser.server import serving
from tests.calibrated_store import index_pages, random_calibration
from tests.serving.test_load import until

SECONDS = 300
"""How long anything may take before a test fails: the machine may be busy."""


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.org"])
def test_without_keys_it_listens_on_loopback_only(host: str) -> None:
    done = CliRunner().invoke(app, ["serve", "--store", "none", "--host", host])
    assert done.exit_code == 2
    assert "--api-key-file" in done.output


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no keys"),
        ("# only words\n", "no keys"),
        ("short\n", "shorter than"),
        ("k" * 20 + " other\n", "limited to other, and the stores that are served are default"),
        ("k" * 20 + "ü\n", "ASCII"),
    ],
)
def test_keys_that_would_not_serve_are_refused(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "keys").write_text(text)
    with pytest.raises(ServingError, match=reason):
        read_keys(tmp_path / "keys", ["default"])
    with pytest.raises(ServingError, match="cannot be read"):
        read_keys(tmp_path / "none", ["default"])


def test_a_taken_port_is_told_before_the_model_is_loaded(tmp_path: Path, small_backbone: Backbone) -> None:
    store, _ = calibrated_store(tmp_path, small_backbone)
    with bind("127.0.0.1", 0) as taken:
        taken.listen()
        words = ["serve", "--store", store, "--port", str(taken.getsockname()[1])]
        with pytest.raises(ServingError, match=r"cannot listen on 127\.0\.0\.1"):
            CliRunner().invoke(app, words, catch_exceptions=False)


def calibrated_store(folder: Path, backbone: Backbone) -> tuple[str, str]:
    """A store of three pages, and the reference of one of them."""
    store = index_pages(folder, backbone, pages=3)
    with PageStore.open(store) as opened:
        calibration = random_calibration(opened.lineage, backbone.geometry.width)
        reference = opened.reference(opened.page_ids()[0])
    calibration.save(calibrations_folder(store))
    return store, reference


def test_a_server_starts_answers_and_ends_in_order(
    tmp_path: Path, model_folder: Path, small_backbone: Backbone
) -> None:
    store, reference = calibrated_store(tmp_path, small_backbone)
    (tmp_path / "keys").write_text("# the only one\na-key-of-some-length\n")
    log = tmp_path / "log"
    with serving(Path(store), "--api-key-file", str(tmp_path / "keys"), log=log) as address:
        body = {"query": "bars", "documents": [reference]}
        assert httpx.post(f"{address}/v1/rerank", json=body, timeout=SECONDS).status_code == 401
        headers = {"Authorization": "Bearer a-key-of-some-length"}
        answer = httpx.post(f"{address}/v1/rerank", json=body, headers=headers, timeout=SECONDS)
        assert answer.status_code == 200, log.read_text()
        assert answer.json()["reasons"] == ["one candidate: there is nothing to rank"]
    said = log.read_text()
    assert re.search(rf"3 pages, 1 worker; {address}\n", said)
    assert "no retriever" in said
    assert said.startswith(f"opening {store} and loading its model\n")
    assert not any(word in said for word in ("Traceback", "leaked"))


def test_of_two_workers_one_that_dies_is_replaced_and_one_that_is_stopped_does_not_hold_up_the_end(
    tmp_path: Path, model_folder: Path, small_backbone: Backbone
) -> None:
    store, reference = calibrated_store(tmp_path, small_backbone)
    body = {"query": "bars", "documents": [reference]}
    log = tmp_path / "log"
    with serving(Path(store), "--query-log", str(tmp_path / "asked.jsonl"), log=log, workers=2) as address:

        def ask() -> int:
            with suppress(httpx.TransportError):  # the worker that took the connection is gone
                return httpx.post(f"{address}/v1/rerank", json=body, timeout=SECONDS).status_code
            return 0

        def logs() -> set[str]:
            return {path.name for path in tmp_path.glob("asked-*.jsonl")}

        until(lambda: len(logs()) == 2)
        with ThreadPoolExecutor(4) as callers:
            assert list(callers.map(lambda _: ask(), range(20))) == [200] * 20
        counted = httpx.get(f"{address}/metrics", timeout=SECONDS).text
        assert 'ridgerank_requests_total{route="/v1/rerank",status="200"} 20.0' in counted
        before = logs()
        os.kill(int(before.copy().pop().removeprefix("asked-").removesuffix(".jsonl")), signal.SIGKILL)
        until(lambda: len(logs() - before) == 1)
        until(lambda: ask() == 200)
        [replacement] = logs() - before
        os.kill(int(replacement.removeprefix("asked-").removesuffix(".jsonl")), signal.SIGSTOP)
    # `serving` has waited for the end of the server.
    assert "the server ends now" in log.read_text()
    assert "Traceback" not in log.read_text()


def test_a_worker_that_cannot_open_its_store_ends_the_server(
    tmp_path: Path, model_folder: Path, small_backbone: Backbone
) -> None:
    store, _ = calibrated_store(tmp_path, small_backbone)
    options = ["--port", "0", "--workers", "2", "--query-log", str(tmp_path / "none" / "asked.jsonl")]
    done = subprocess.run(
        [sys.executable, "-m", "ridgerank", "serve", "--store", store, *options],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode != 0
    assert "cannot be written" in done.stderr
