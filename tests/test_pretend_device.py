"""Every command's work on a device that is not the host's: nothing mixes the two, and times are true."""

from pathlib import Path

import numpy as np
import pytest
import torch
from fastapi.testclient import TestClient

from miniature import weights
from ridgerank.reranker.reranker import Reranker
from ridgerank.serving.app import create_app
from ridgerank.serving.service import Service
from ridgerank.serving.settings import ServeSettings
from tests.calibrated_store import write_reports
from tests.cli.commands import invoke
from tests.pretend_device import OnDevice, pretend_cuda

pytestmark = pytest.mark.slow
QUERY = "What was the revenue in 2023?"


def test_the_pretend_device_raises_where_cuda_would() -> None:
    with pretend_cuda():
        there, here = torch.ones(3, device="cuda"), torch.ones(3)
        assert (there.device.type, (there + 1).device.type, there.cpu().device.type) == (
            "cuda",
            "cuda",
            "cpu",
        )
        assert isinstance(here.to("cuda"), OnDevice)
        assert there[torch.tensor([1])].device.type == "cuda"
        for mixed in (
            lambda: there + here,
            lambda: torch.cat([there, here]),
            lambda: here[torch.tensor([0], device="cuda")],
            lambda: there.index_select(0, torch.tensor([0])),
            lambda: there.__setitem__(slice(0, 3), here),
            lambda: torch.add(here, here, out=there),
        ):
            with pytest.raises(RuntimeError, match="one device"):
                mixed()
        with pytest.raises(TypeError, match="numpy"):
            np.asarray(there)


@pytest.mark.parametrize("preset", ["paper", "small"])
def test_every_command_keeps_to_the_device(preset: str, tmp_path: Path, model_folder: Path) -> None:
    """Index with a retriever, calibrate, search, explain and serve; the host ranks the store alike."""
    reports, store = write_reports(tmp_path / "reports", pages=24), tmp_path / "store"
    on_device = ("--store", store, "--device", "cuda", "--dtype", "float32")
    models = ("--backbone", model_folder, "--retriever", weights("mini-colqwen-small"))
    with pretend_cuda() as waited:
        invoke("index", reports, *on_device, *models, "--preset", preset, "--max-pixels", 30 * 28 * 28)
        invoke("calibrate", *on_device, "--count", 16, "--candidates", 6)
        assert "page" in invoke("search", QUERY, *on_device).output
        with Reranker.open(store, device="cuda", dtype=torch.float32) as reranker:
            there = reranker.search(QUERY, k=6)
            explained = reranker.explain(QUERY, there.pages[0].page_id)
            assert isinstance(reranker.backbone._text_model().norm.weight, OnDevice)
            waited.clear()
            reranker.search(QUERY, k=6)
            assert len(waited) >= 2  # compute_ms begins and ends when the device is idle
            app = create_app(Service(reranker, ServeSettings()))
            with TestClient(app, base_url="http://127.0.0.1") as client:
                served = client.post("/v1/search", json={"query": QUERY, "k": 6})
    with Reranker.open(store, device="cpu", dtype=torch.float32) as reranker:
        here = reranker.search(QUERY, k=6)
        np.testing.assert_allclose(
            reranker.explain(QUERY, here.pages[0].page_id).weights, explained.weights, atol=1e-5
        )
    assert [page.page_id for page in here.pages] == [page.page_id for page in there.pages]
    np.testing.assert_allclose(
        [page.fused_score for page in here.pages],
        [page.fused_score for page in there.pages],
        rtol=1e-3,
        atol=1e-4,
    )
    assert served.status_code == 200, served.text
