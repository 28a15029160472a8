"""Fingerprints are stable, and move when what they stand for moves."""

from pathlib import Path

import torch

from ridgerank.backbones.base import Backbone
from ridgerank.backbones.identity import fingerprint_weights
from ridgerank.backbones.load import load_backbone
from tests.backbones.small_models import FAMILIES, Built, build


def test_the_same_folder_has_the_same_fingerprints(built: Built, backbone: Backbone) -> None:
    again = load_backbone(built.folder, device="cpu")
    assert again.fingerprints().weights == backbone.fingerprints().weights
    assert again.fingerprints().processor == backbone.fingerprints().processor
    assert again.fingerprints().prompt == backbone.fingerprints().prompt


def test_another_pixel_budget_is_another_processor(built: Built, backbone: Backbone) -> None:
    other = load_backbone(built.folder, device="cpu", max_pixels=112 * 112)
    assert other.fingerprints().processor != backbone.fingerprints().processor
    assert other.fingerprints().weights == backbone.fingerprints().weights


def test_another_dtype_is_other_weights(built: Built, backbone: Backbone) -> None:
    half = load_backbone(built.folder, device="cpu", dtype=torch.bfloat16)
    assert half.fingerprints().weights != backbone.fingerprints().weights


def test_families_differ_in_their_prompts(tmp_path: Path) -> None:
    families = [family for family in FAMILIES if family != "qwen2_vl"]  # it has Qwen2.5-VL's template
    folders = [build(family, tmp_path / family).folder for family in families]
    prompts = {load_backbone(folder, device="cpu").fingerprints().prompt for folder in folders}
    assert len(prompts) == len(families)


def test_one_changed_value_one_renamed_tensor_one_shape_each_change_the_digest() -> None:
    def digest(name: str, values: torch.Tensor) -> str:
        module = torch.nn.Module()
        module.register_parameter(name, torch.nn.Parameter(values))
        return fingerprint_weights(module)

    values = torch.arange(12.0)
    nudged = values.clone()
    nudged[5] = torch.nextafter(nudged[5], torch.tensor(9.0))
    digests = [digest("a", values), digest("a", nudged), digest("b", values), digest("a", values.view(3, 4))]
    assert len(set(digests)) == 4
    assert digest("a", values.clone()) == digests[0]
