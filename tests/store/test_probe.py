"""Another precision or a little noise is the same model to a store; another model is not."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ridgerank.backbones.base import Backbone
from ridgerank.backbones.decoder import Decoder
from ridgerank.errors import LineageMismatch
from ridgerank.indexing.index import index_documents
from ridgerank.scoring.shallow import ShallowPass
from ridgerank.store import layout
from ridgerank.store.page_store import PageStore
from ridgerank.store.probe import compare_scores, run_probe
from tests.conftest import write_pdf

SCORES = np.random.default_rng(0).normal(size=(2, 8))


@pytest.fixture(scope="module")
def store(small_backbone: Backbone, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("probed")
    write_pdf(folder / "a.pdf", pages=9)
    index_documents([folder / "a.pdf"], folder / "store", small_backbone, preset="small", processes=1)
    return str(folder / "store")


def disturbed(backbone: Backbone, noise: float) -> Backbone:
    """The same with noise on every weight, in parts of its tensor's deviation."""
    other: Any = copy.copy(backbone)
    other._model = copy.deepcopy(backbone._model)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in other._model.parameters():
            spread = parameter.std() if parameter.numel() > 1 else 0.0
            parameter += noise * spread * torch.randn(parameter.shape, generator=generator)
    other.__dict__.pop("fingerprints", None)
    text = other._text_model()
    other._decoder = Decoder(other._take_block, other.geometry, rotary=text.rotary_emb, rotate=other.rotate)
    return other  # type: ignore[no-any-return]


def test_a_little_noise_is_accepted_and_much_is_refused(store: str, small_backbone: Backbone) -> None:
    near, far = disturbed(small_backbone, 0.01), disturbed(small_backbone, 0.2)
    with PageStore.open(store) as opened:
        same = run_probe(opened, small_backbone)
        assert same is not None
        assert same.correlation == pytest.approx(1.0, abs=1e-5)
        ShallowPass(near, opened)
        with pytest.raises(LineageMismatch, match=r"the probe's scores correlate at"):
            ShallowPass(far, opened)


def test_pages_are_added_only_if_a_stored_one_is_still_read_as_it_was(
    small_backbone: Backbone, tmp_path: Path
) -> None:
    for preset in ("small", "paper"):
        write_pdf(tmp_path / preset / "a.pdf", pages=2)
        folder, uri = tmp_path / preset, str(tmp_path / preset / "store")
        index_documents([folder / "a.pdf"], uri, small_backbone, preset=preset, processes=1)
        other = disturbed(small_backbone, 0.5)
        other.__dict__["fingerprints"] = small_backbone.fingerprints  # another release reads pages otherwise
        write_pdf(folder / "b.pdf", pages=1, seed=3)
        with pytest.raises(LineageMismatch, match=r"a.pdf#1 is not read here as when it was added"):
            index_documents([folder / "b.pdf"], uri, other, preset=preset, processes=1)
        narrow = disturbed(small_backbone, 0.002)
        narrow.__dict__["fingerprints"] = small_backbone.fingerprints
        assert index_documents([folder / "b.pdf"], uri, narrow, preset=preset, processes=1).added == 1


def test_without_a_probe_other_weights_are_refused(
    store: str, small_backbone: Backbone, tmp_path: Path
) -> None:
    probe = Path(store) / layout.PROBE
    kept = probe.read_bytes()
    probe.unlink()
    try:
        with PageStore.open(store) as opened, pytest.raises(LineageMismatch, match="has no probe"):
            ShallowPass(disturbed(small_backbone, 0.001), opened)
    finally:
        probe.write_bytes(kept)


def test_scores_may_be_shifted_and_near_ties_change_places_and_others_may_not() -> None:
    assert compare_scores(SCORES, SCORES + np.array([[100.0], [-3.0]])).accepted
    result = compare_scores(SCORES, np.random.default_rng(1).normal(size=(2, 8)))
    assert not result.accepted
    assert "expected at least 0.99" in str(result)
    assert not compare_scores(SCORES, np.zeros((2, 8))).accepted
    scores = np.array([[0.0, 0.01, 1.0, 2.0, 30.0, 60.0]])
    near = scores[:, [1, 0, 2, 3, 4, 5]]
    assert compare_scores(scores, near).accepted
    assert compare_scores(scores[:, [0, 2, 4]], scores[:, [0, 4, 2]]).swapped == 1
