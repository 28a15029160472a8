"""Models that read text: how much of a page, under which prompt, and never as a command."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from experiments.validate_gpu import own_margins
from ridgerank.backbones.base import Backbone, full_margins
from ridgerank.backbones.load import load_backbone
from ridgerank.backbones.text import MODEL_CLASSES, TEXT_PROMPTS, CausalText, choose_prompt
from ridgerank.errors import BackboneError
from ridgerank.records import Page
from tests.backbones.small_models import Built
from tests.backbones.small_text_models import CLASSES, PROMPTS, build_text

LONG_PAGE = "one word and another " * 20
of_each_class = pytest.mark.parametrize("built", CLASSES, indirect=True)


@of_each_class
def test_the_family_and_its_prompt_are_found_and_the_text_of_a_page_is_read(
    built: Built, backbone: Backbone
) -> None:
    assert isinstance(backbone, CausalText)
    assert backbone.family == built.family
    assert backbone.prompt == TEXT_PROMPTS[PROMPTS[built.family]]
    page = Page("id", "a.pdf#1", Image.new("RGB", (4, 4)), "what it says")
    assert backbone.content(page) == "what it says"


@of_each_class
def test_of_a_long_page_the_beginning_is_read(built: Built, backbone: Backbone) -> None:
    limited = load_backbone(built.folder, device="cpu", page_text="head 8")
    [prefix] = limited.encode([LONG_PAGE], exit_layer=1)
    [whole] = backbone.encode([LONG_PAGE], exit_layer=1)
    start = int(prefix.visual.nonzero()[0])
    torch.testing.assert_close(prefix.keys[:, :, : start + 8], whole.keys[:, :, : start + 8])
    assert int(prefix.visual.sum()) == 8 < int(whole.visual.sum())
    assert limited.page_text == "head 8"
    assert isinstance(limited, CausalText)
    assert len(limited._head("x" * 1_000_000)) == 800  # a text of megabytes is not tokenized whole
    assert limited.fingerprints["processor"] != backbone.fingerprints["processor"]
    assert limited.fingerprints["prompt"] == backbone.fingerprints["prompt"]


@of_each_class
@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ({"max_pixels": 1000}, "pixels is not for it"),
        ({"prompt": "other"}, "no prompt called 'other'; known: chatml"),
        ({"page_text": "tail 5"}, "spelled 'tail 5'"),
        ({"page_text": "head 0"}, "at least one token"),
    ],
)
def test_settings_that_make_no_sense_are_refused(
    built: Built, setting: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(BackboneError, match=complaint):
        load_backbone(built.folder, device="cpu", **setting)


@pytest.mark.parametrize(
    ("name", "control", "expected"),
    [
        ("SmolLM2-135M-Instruct", ["<|im_start|>", "<|im_end|>"], "chatml"),
        ("Qwen/Qwen3-0.6B", ["<|im_start|>", "<|im_end|>", "<think>"], "qwen3"),
        ("Qwen/Qwen3-Reranker-0.6B", ["<|im_start|>", "<|im_end|>", "<think>"], "qwen3-reranker"),
        ("meta-llama/Llama-3.2-1B-Instruct", ["<|start_header_id|>", "<|eot_id|>"], "llama3"),
        ("some/base-model", ["<s>", "</s>"], "plain"),
    ],
)
def test_the_prompt_is_seen_from_the_control_tokens(name: str, control: list[str], expected: str) -> None:
    assert choose_prompt(name, control) == expected


def test_the_page_shows_how_to_add_a_class_of_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[2] / "docs/retrievers.md").read_text()
    [snippet] = re.findall(r"```python\n(from ridgerank\.backbones\.text.*?)```", page, flags=re.DOTALL)
    monkeypatch.setitem(MODEL_CLASSES, "mistral", MODEL_CLASSES["llama"])  # afterwards there is none again
    exec(snippet, {})
    build_text("mistral", tmp_path)
    model, texts = load_backbone(tmp_path, device="cpu"), ["what it says", LONG_PAGE]
    expected = own_margins(model, "what", texts)
    np.testing.assert_allclose(full_margins(model, "what", texts).numpy(), expected, atol=1e-3)
