from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from experiments.baselines.monoqwen import load_mono_qwen
from ridgerank.errors import BackboneError
from tests.experiments.baselines.small_judges import BuiltJudge, build_mono_qwen

QUERY = "What was the revenue in 2023?"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> BuiltJudge:
    return build_mono_qwen(tmp_path_factory.mktemp("mono"))


@pytest.fixture(scope="module")
def images() -> list[Image.Image]:
    generator = np.random.default_rng(5)
    return [
        Image.fromarray(generator.integers(0, 256, (height, width, 3), dtype=np.uint8))
        for width, height in ((112, 168), (196, 84))
    ]


def library_probability(built: BuiltJudge, query: str, image: Image.Image) -> float:
    """The published recipe with the library alone: one prompt, one forward, two logits."""
    batch = built.image_processor(images=[image], return_tensors="pt")
    count = int(batch["image_grid_thw"].prod()) // 4
    text = (
        "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n<|vision_start|>"
        f"{'<|image_pad|>' * count}<|vision_end|>Assert the relevance of the previous image document to the "
        f"following query, answer True or False. The query is: {query}<|im_end|>\n<|im_start|>assistant\n"
    )
    ids = built.tokenizer(text, return_tensors="pt")["input_ids"]
    types = (ids == built.model.config.image_token_id).int()
    with torch.no_grad():
        logits = built.model(input_ids=ids, mm_token_type_ids=types, **batch).logits[0, -1]
    true, false = built.tokenizer.convert_tokens_to_ids(["True", "False"])
    return float(logits[[true, false]].softmax(dim=0)[0])


def test_the_score_is_the_probability_by_the_librarys_own_forward(
    built: BuiltJudge, images: list[Image.Image]
) -> None:
    judge = load_mono_qwen(str(built.adapter), device="cpu")
    expected = [library_probability(built, QUERY, image) for image in images]
    assert judge.judge(QUERY, images) == pytest.approx(expected, rel=1e-4, abs=1e-4)
    assert expected[0] != pytest.approx(expected[1], abs=1e-3)


def test_what_is_no_adapter_is_refused(built: BuiltJudge, tmp_path: Path) -> None:
    with pytest.raises(BackboneError, match="holds no adapter_config"):
        load_mono_qwen(str(built.base), device="cpu")
