"""Every command's work on a device that is not the host's: nothing mixes the two, and times are true."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fastapi.testclient import TestClient
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from miniature import weights
from ridgerank.backbones.load import load_backbone
from ridgerank.indexing.index import index_documents
from ridgerank.lineage import StoragePreset
from ridgerank.reranker.reranker import Reranker
from ridgerank.scoring.shallow import ShallowPass
from ridgerank.serving.app import create_app
from ridgerank.serving.service import Service
from ridgerank.serving.settings import ServeSettings
from ridgerank.store.page_store import PageStore
from tests.backbones.small_text_models import build_text
from tests.calibrated_store import write_reports
from tests.cli.commands import invoke
from tests.pretend_device import OnDevice, pretend_cuda
from tests.serving.conftest import served

pytestmark = pytest.mark.slow
QUERY = "What was the revenue in 2023?"


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
            app = create_app(Service([served(reranker)], ServeSettings()))
            with TestClient(app, base_url="http://127.0.0.1") as client:
                answer = client.post("/v1/search", json={"query": QUERY, "k": 6})
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
    assert answer.status_code == 200, answer.text


def _tensors(value: object) -> list[torch.Tensor]:
    return [each for each in tree_leaves(value) if isinstance(each, torch.Tensor)]


class CountLaunches(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts operations on the device that are no views: about what CUDA would launch a kernel for."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.counted: Counter[str] = Counter()

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 (whatever the function gives)
        made = func(*args, **(kwargs or {}))
        given = _tensors((args, kwargs))
        memory = {each.untyped_storage().data_ptr() for each in given}
        name = func._schema.name.removeprefix("aten::")  # type: ignore[attr-defined]
        written = func._schema.is_mutable or name.startswith("empty")  # type: ignore[attr-defined]
        fresh = any(each.untyped_storage().data_ptr() not in memory for each in _tensors(made))
        if any(isinstance(each, OnDevice) for each in given) and (fresh or written):
            self.counted[name] += 1
        return made


@pytest.mark.parametrize("preset", ["paper", "small"])
def test_twenty_pages_of_any_lengths_take_few_launches(preset: StoragePreset, tmp_path: Path) -> None:
    """Operations for one more layer, from cached pages to states: counted, not measured on a GPU."""
    folder = build_text("qwen2", tmp_path / "model").folder
    reports = write_reports(tmp_path / "reports", pages=24)
    counts = []
    with pretend_cuda():
        backbone = load_backbone(folder, device="cuda", dtype=torch.float32)
        for exit_layer in (2, 4):
            uri = str(tmp_path / f"store-{exit_layer}")
            index_documents([reports], uri, backbone, preset=preset, exit_layer=exit_layer, processes=0)
            shallow = ShallowPass(backbone, PageStore.open(uri))
            pages = shallow.store.page_ids()[:20]
            assert len({len(page.positions) for page in shallow.store.read_prefixes(pages)}) > 5
            shallow.run(QUERY, pages)
            with CountLaunches() as launches:
                shallow.run(QUERY, pages)
            counts.append(launches.counted)
    more = counts[1] - counts[0]
    assert more.total() / 2 <= 45, more
