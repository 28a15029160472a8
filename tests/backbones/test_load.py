"""Loading: names, folders, devices, dtypes, pixel budgets, and what is refused."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from ridgerank.backbones.base import Backbone, Content
from ridgerank.backbones.decoder import PrefixBatch
from ridgerank.backbones.load import FAMILIES, load_backbone, placement
from ridgerank.backbones.model_settings import SHORT_NAMES, ModelSettings
from ridgerank.errors import BackboneError
from ridgerank.lineage import Keep, StorageSetting
from tests.backbones.small_models import LAYERS, Built

QUERY = "What was the revenue?"


looking = pytest.mark.parametrize("built", FAMILIES, indirect=True)
"""Models that look at pages."""


def test_weights_saved_in_bfloat16_run_in_it_and_stay_close(
    built: Built, backbone: Backbone, pages: list[Content], tmp_path: Path
) -> None:
    assert load_backbone(built.folder, device="cpu").dtype == torch.float32  # as the weights are
    folder = shutil.copytree(built.folder, tmp_path / "half")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "dtype": "bfloat16"}))
    half = load_backbone(folder, device="cpu")
    (prefix,) = half.encode(pages[:1], exit_layer=LAYERS)
    assert (half.dtype, prefix.keys.dtype) == (torch.bfloat16, torch.bfloat16)
    states = half.states([QUERY], PrefixBatch([prefix]))
    assert states.dtype == torch.float32
    exact = backbone.states([QUERY], PrefixBatch(backbone.encode(pages[:1], exit_layer=LAYERS)))
    assert torch.nn.functional.cosine_similarity(states, exact).item() > 0.99
    assert half.logit_lens(states).dtype == torch.float32
    assert half.fingerprints["weights"] == backbone.fingerprints["weights"]


@looking
def test_the_pixel_budget_bounds_the_visual_positions(built: Built) -> None:
    page = Image.fromarray(np.zeros((600, 400, 3), dtype=np.uint8))
    small = load_backbone(built.folder, device="cpu", max_pixels=112 * 112)
    large = load_backbone(built.folder, device="cpu", max_pixels=224 * 224)
    assert (small.max_pixels, large.max_pixels) == (112 * 112, 224 * 224)
    few, many = (int(one.encode([page], exit_layer=1)[0].visual.sum()) for one in (small, large))
    assert few < many
    assert large.fingerprints["processor"] != small.fingerprints["processor"]
    assert large.fingerprints["weights"] == small.fingerprints["weights"]


@looking
def test_an_image_the_processor_refuses_is_refused_with_its_reason(built: Built, backbone: Backbone) -> None:
    if built.family in ("idefics3", "smolvlm"):
        pytest.skip("tiles take any shape")
    with pytest.raises(BackboneError, match=r"refused a page: .*aspect ratio"):
        backbone.encode([Image.new("RGB", (9000, 30))], exit_layer=1)


def test_an_apple_gpu_is_used_only_where_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: True)
    assert placement(None, None) == (torch.device("cpu"), torch.float32)
    assert placement("mps", None) == (torch.device("mps"), torch.float32)


def test_an_unreachable_hub_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(BackboneError, match=r"cannot load .* Check the name and the connection") as caught:
        load_backbone("smolvlm-256m")
    assert "\n" not in str(caught.value)


def test_an_unknown_name_or_type_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(BackboneError, match="known names") as caught:
        load_backbone("qwen9")
    assert all(name in str(caught.value) for name in SHORT_NAMES)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
    with pytest.raises(BackboneError, match=r"'gpt2'; supported types: qwen2_5_vl, qwen2_vl.*glm4v.*qwen3"):
        load_backbone(tmp_path)


@pytest.mark.parametrize("built", ["qwen2_5_vl"], indirect=True)
@pytest.mark.parametrize("missing", ["tokenizer.json", "preprocessor_config.json", "model.safetensors"])
def test_an_incomplete_folder_is_refused(built: Built, tmp_path: Path, missing: str) -> None:
    shutil.copytree(built.folder, tmp_path / "copy")
    (tmp_path / "copy" / missing).unlink()
    with pytest.raises(BackboneError, match=f"cannot load .*{missing}|holds neither {missing}"):
        load_backbone(tmp_path / "copy")


def test_a_folder_of_several_gguf_files_asks_which_and_a_damaged_one_is_one_clear_line(
    tmp_path: Path,
) -> None:
    pytest.importorskip("gguf")
    (tmp_path / "a.gguf").write_bytes(b"GGUF but no more than that, padded to have a header" * 4)
    for name in (tmp_path, tmp_path / "a.gguf"):
        with pytest.raises(BackboneError, match=r"cannot load .*: a\.gguf: ") as caught:
            load_backbone(name)
        assert "\n" not in str(caught.value)
    (tmp_path / "b.gguf").touch()
    with pytest.raises(BackboneError, match=r"2 GGUF files, a\.gguf, b\.gguf; name one"):
        load_backbone(tmp_path)


@looking
def test_a_model_that_looks_refuses_settings_of_those_that_read(built: Built) -> None:
    with pytest.raises(BackboneError, match="looks at pages"):
        load_backbone(built.folder, page_text="head 100")
    with pytest.raises(BackboneError, match="a budget of 0 pixels"):
        load_backbone(built.folder, max_pixels=0)


@pytest.mark.parametrize("built", ["qwen2_5_vl"], indirect=True)
def test_a_lineage_says_how_to_load_the_model_again(backbone: Backbone) -> None:
    lineage = backbone.lineage(StorageSetting(Keep(), 4))
    assert ModelSettings.from_lineage(lineage) == ModelSettings(backbone.name, max_pixels=backbone.max_pixels)
    of_text = replace(lineage, max_pixels=None, page_text="head 320", prompt_name="qwen3-reranker")
    settings = ModelSettings.from_lineage(of_text, name="another", device="cpu", dtype="float32")
    assert settings == ModelSettings(
        "another", "cpu", "float32", page_text="head 320", prompt="qwen3-reranker"
    )


@pytest.mark.parametrize("built", ["qwen2_5_vl", "glm4v", "qwen3"], indirect=True)
def test_what_ranks_is_loaded_first_and_the_rest_when_it_is_needed(
    built: Built, backbone: Backbone, pages: list[Content]
) -> None:
    part = load_backbone(built.folder, device="cpu", layers=2)
    text = part._text_model()
    ranking = [text.get_input_embeddings(), text.norm, text.layers[0], text.layers[1]]
    needed = sum(parameter.nbytes for module in ranking for parameter in module.parameters())
    assert part.nbytes == needed < backbone.nbytes
    assert f"2 of its {LAYERS} layers" in part.describe_memory()
    stored = PrefixBatch(backbone.encode(pages, exit_layer=2))
    assert torch.equal(part.states([QUERY], stored), backbone.states([QUERY], stored))
    assert part.nbytes == needed
    assert part.fingerprints == backbone.fingerprints
    for exit_layer in (2, LAYERS):
        ours, whole = (PrefixBatch(one.encode(pages, exit_layer=exit_layer)) for one in (part, backbone))
        assert torch.equal(part.states([QUERY], ours), backbone.states([QUERY], whole))
    assert torch.equal(part.targets([QUERY], ours)["margin"], backbone.targets([QUERY], whole)["margin"])
    assert (part.nbytes, part.describe_memory()) == (backbone.nbytes, backbone.describe_memory())
