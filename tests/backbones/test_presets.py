"""Trained rerankers as backbones: the cut model gives the score of the model as published."""

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from torch import nn
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from experiments.baselines.monoqwen import load_mono_qwen
from ridgerank.backbones.base import Backbone, full_margins
from ridgerank.backbones.decoder import PrefixBatch
from ridgerank.backbones.load import load_backbone
from ridgerank.backbones.model_settings import PRESETS, SHORT_NAMES, available_targets, find_preset
from ridgerank.errors import BackboneError
from tests.backbones.small_models import LAYERS, WIDTH, Built, build
from tests.experiments.baselines.small_judges import BuiltJudge, build_mono_qwen

QUERY = "What was the revenue in 2023?"


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> BuiltJudge:
    return build_mono_qwen(tmp_path_factory.mktemp("mono"))


@pytest.fixture(scope="module")
def mono(judge: BuiltJudge) -> Backbone:
    return load_backbone(judge.adapter, device="cpu", prompt="monoqwen2-vl")


@pytest.fixture(scope="module")
def built_ranker(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """A Qwen2-VL with a head as published: no language head, the head's tensors beside the others."""
    built = build("qwen2_vl", tmp_path_factory.mktemp("models") / "jina-reranker-m0")
    torch.manual_seed(5)
    head = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1))
    built.model.score = head
    weights = load_file(built.folder / "model.safetensors")
    del weights["lm_head.weight"]
    weights |= {f"score.{name}": tensor for name, tensor in head.state_dict().items()}
    save_file(weights, built.folder / "model.safetensors", metadata={"format": "pt"})
    return built


@pytest.fixture(scope="module")
def ranker(built_ranker: Built) -> Backbone:
    return load_backbone(built_ranker.folder, device="cpu")


def published_score(built: Built, image: Image.Image, query: str) -> float:
    """One prompt, token 100, one forward, the head on the last normed state."""
    from transformers import AutoTokenizer

    batch = Qwen2VLImageProcessorPil.from_pretrained(built.folder)(images=[image], return_tensors="pt")
    count = int(batch["image_grid_thw"].prod()) // 4
    text = f"**Document**:\n<|vision_start|>{'<|image_pad|>' * count}<|vision_end|>\n**Query**:\n{query}"
    ids = AutoTokenizer.from_pretrained(built.folder)(text)["input_ids"] + [100]
    input_ids = torch.tensor([ids])
    types = (input_ids == built.model.config.image_token_id).int()
    with torch.no_grad():
        states = built.model.model(input_ids=input_ids, mm_token_type_ids=types, **batch).last_hidden_state
        return float(built.model.score(states[0, -1]))


def test_monoqwen_as_backbone_is_monoqwen_as_baseline(
    judge: BuiltJudge, mono: Backbone, images: list[Image.Image]
) -> None:
    probabilities = load_mono_qwen(str(judge.adapter), device="cpu").judge(QUERY, images)
    margins = full_margins(mono, QUERY, images)
    assert mono.prompt is PRESETS["monoqwen2-vl"].prompt
    assert torch.sigmoid(margins).tolist() == pytest.approx(probabilities, abs=1e-4)
    assert np.ptp(probabilities) > 1e-3, "the pages tell apart"


def test_an_adapter_changes_the_model_and_is_merged(judge: BuiltJudge, mono: Backbone) -> None:
    base = load_backbone(judge.base, device="cpu", prompt="monoqwen2-vl")
    assert base.fingerprints["weights"] != mono.fingerprints["weights"]
    assert {name for name, _ in base._model.named_parameters()} == {
        name for name, _ in mono._model.named_parameters()
    }


def test_the_heads_score_is_that_of_one_forward(
    built_ranker: Built, ranker: Backbone, images: list[Image.Image]
) -> None:
    scores = full_margins(ranker, QUERY, images).tolist()
    expected = [published_score(built_ranker, page, QUERY) for page in images]
    assert scores == pytest.approx(expected, abs=1e-4)
    assert np.ptp(expected) > 1e-3, "the pages tell apart"


def test_a_ranking_head_leaves_no_likelihood(ranker: Backbone, images: list[Image.Image]) -> None:
    prefixes = PrefixBatch(ranker.encode(images[:1], exit_layer=LAYERS))
    with pytest.raises(BackboneError, match="no likelihood"):
        ranker.targets([QUERY], prefixes)
    assert available_targets(ranker.prompt.name) == ("margin",)
    assert available_targets("monoqwen2-vl") == available_targets(None) == ("margin", "likelihood")


def test_a_folder_without_the_head_is_refused(judge: BuiltJudge) -> None:
    with pytest.raises(BackboneError, match=r"holds no score\.0\.weight"):
        load_backbone(judge.base, device="cpu", prompt="jina-reranker-m0")


def test_the_licence_is_told_on_loading(built_ranker: Built, caplog: pytest.LogCaptureFixture) -> None:
    load_backbone(built_ranker.folder, device="cpu")
    assert "CC-BY-NC-4.0" in caplog.text


def test_presets_are_found_by_name_class_and_prompt() -> None:
    assert find_preset("lightonai/MonoQwen2-VL-v0.1", "qwen2_vl") is PRESETS["monoqwen2-vl"]
    assert find_preset("a", "qwen2_vl", classes=["JinaVLForRanking"]) is PRESETS["jina-reranker-m0"]
    assert find_preset("a", "qwen2_vl", prompt="monoqwen2-vl") is PRESETS["monoqwen2-vl"]
    assert find_preset("Qwen/Qwen2-VL-2B-Instruct", "qwen2_vl") is None
    assert find_preset("monoqwen2-vl", "glm4v") is None
    with pytest.raises(BackboneError, match=r"known for it: monoqwen2-vl, jina-reranker-m0"):
        find_preset("a", "qwen2_vl", prompt="chatml")
    assert {SHORT_NAMES[name] for name in PRESETS} == {preset.repository for preset in PRESETS.values()}


def test_an_instruction_that_ends_in_a_blank_is_cut_before_it(judge: BuiltJudge, mono: Backbone) -> None:
    prompt = mono.prompt
    for query in ("revenue", "12 %", "¿qué?", "北京", "«x»"):
        whole = judge.tokenizer(prompt.instruction + query + prompt.after_query, add_special_tokens=False)[
            "input_ids"
        ]
        suffix = mono.tokens.suffix(query)
        assert whole[-len(suffix) :] == suffix
        assert len(whole) - len(suffix) == mono.tokens.describe()["instruction_tokens_stored"]
