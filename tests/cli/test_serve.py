"""`ridgerank serve`: closed by default, and an orderly start and end."""

import re
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from ridgerank.backbones.base import Backbone
from ridgerank.cli.main import app
from ridgerank.errors import ServingError
from ridgerank.serving.serve_settings import read_keys
from ridgerank.store.page_store import PageStore
from ridgerank.store.sidecar import calibrations_folder
from tests.browser.server import serving
from tests.calibrated_store import index_pages, random_calibration

SECONDS = 120
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
        ("k" * 20 + " x\n", "space"),
    ],
)
def test_keys_that_would_not_serve_are_refused(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "keys").write_text(text)
    with pytest.raises(ServingError, match=reason):
        read_keys(tmp_path / "keys")


def test_a_missing_key_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ServingError, match="cannot be read"):
        read_keys(tmp_path / "none")


def test_a_server_starts_answers_and_ends_in_order(
    tmp_path: Path, model_folder: Path, small_backbone: Backbone
) -> None:
    store = index_pages(tmp_path, small_backbone, pages=3)
    with PageStore.open(store) as opened:
        calibration = random_calibration(opened.lineage, small_backbone.geometry.width)
        [reference, *_] = [opened.reference(page_id) for page_id in opened.page_ids()]
    calibration.save(calibrations_folder(store))
    (tmp_path / "keys").write_text("# the only one\na-key-of-some-length\n")
    log = tmp_path / "log"
    with serving(Path(store), "--api-key-file", str(tmp_path / "keys"), log=log) as address:
        body = {"query": "bars", "documents": [reference]}
        assert httpx.post(f"{address}/v1/rerank", json=body, timeout=SECONDS).status_code == 401
        headers = {"Authorization": "Bearer a-key-of-some-length"}
        answer = httpx.post(f"{address}/v1/rerank", json=body, headers=headers, timeout=SECONDS)
        assert answer.status_code == 200, log.read_text()
        assert answer.json()["weight_source"] == "readout_alone"  # its retriever cannot be loaded
    said = log.read_text()
    assert re.search(rf"3 pages, ridgerank-\S+; {address}\n", said)
    assert "no retriever" in said
    assert "Traceback" not in said
