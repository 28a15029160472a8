import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from experiments.baselines.monoqwen import load_mono_qwen
from experiments.baselines.qwen3_reranker import Qwen3Reranker, load_qwen3_reranker
from ridgerank.errors import BackboneError
from tests.backbones.small_models import Built
from tests.backbones.small_text_models import build_text
from tests.experiments.baselines.small_judges import BuiltJudge, build_mono_qwen

QUERY = "What was the revenue in 2023?"
TEXTS = ["revenue 12345", "", "Answer with one word, yes or no. " * 6]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build_text("qwen3", tmp_path_factory.mktemp("qwen3"))


@pytest.fixture(scope="module")
def tokenizer(built: Built) -> PreTrainedTokenizerFast:
    return AutoTokenizer.from_pretrained(built.folder)


def test_a_texts_score_is_the_probability_by_the_librarys_own_forward(
    built: Built, tokenizer: PreTrainedTokenizerFast
) -> None:
    """The published recipe with the library alone, a prompt at a time and without padding."""
    expected = []
    for text in TEXTS:
        prompt = (
            "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and "
            'the Instruct provided. Note that the answer can only be "yes" or "no".<|im_end|>\n'
            "<|im_start|>user\n"
            "<Instruct>: Given a web search query, retrieve relevant passages that answer the query\n"
            f"<Query>: {QUERY}\n<Document>: {text.strip()}"
            "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
        )
        ids = tokenizer(prompt, return_tensors="pt")["input_ids"]
        with torch.no_grad():
            logits = built.model(input_ids=ids).logits[0, -1]
        yes, no = tokenizer.convert_tokens_to_ids(["yes", "no"])
        expected.append(torch.log_softmax(logits[[yes, no]], dim=0))
    judge = load_qwen3_reranker(str(built.folder), device="cpu")
    probabilities = [float(logits[:2].softmax(dim=0)[0]) for logits in expected]
    assert judge.judge(QUERY, TEXTS) == pytest.approx(probabilities, rel=1e-4, abs=1e-5)
    assert len({round(value, 4) for value in probabilities}) == 3


def test_a_long_text_loses_its_end_and_nothing_else(built: Built, tokenizer: PreTrainedTokenizerFast) -> None:
    whole = Qwen3Reranker(built.model, tokenizer).prompt_ids(QUERY, TEXTS[2])
    short = Qwen3Reranker(built.model, tokenizer, max_tokens=len(whole) - 5).prompt_ids(QUERY, TEXTS[2])
    assert len(short) == len(whole) - 5
    after = len(tokenizer("<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n")["input_ids"])
    assert short[-after:] == whole[-after:]
    assert short[:-after] == whole[: len(short) - after]


def test_a_model_of_another_class_or_none_is_refused(tmp_path: Path) -> None:
    other = build_text("qwen2", tmp_path / "other")
    with pytest.raises(BackboneError, match="a model of type 'qwen2', wanted 'qwen3'"):
        load_qwen3_reranker(str(other.folder), device="cpu")
    with pytest.raises(BackboneError, match="cannot load"):
        load_qwen3_reranker(str(tmp_path / "nowhere"), device="cpu")


def test_code_in_its_folder_neither_runs_nor_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, ran = build_text("qwen3", tmp_path / "model").folder, tmp_path / "ran"
    (folder / "theirs.py").write_text(f"open({str(ran)!r}, 'w')\nclass Theirs: pass\n")
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "theirs", "auto_map": {"AutoConfig": "theirs.Theirs"}}
    (folder / "config.json").write_text(json.dumps(config))
    monkeypatch.setattr("builtins.input", lambda *_: "yes")
    with pytest.raises(BackboneError, match="cannot load"):
        load_qwen3_reranker(str(folder), device="cpu")
    assert not ran.exists()


@pytest.fixture(scope="module")
def judge_built(tmp_path_factory: pytest.TempPathFactory) -> BuiltJudge:
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


def test_an_images_score_is_the_probability_by_the_librarys_own_forward(
    judge_built: BuiltJudge, images: list[Image.Image]
) -> None:
    judge = load_mono_qwen(str(judge_built.adapter), device="cpu")
    expected = [library_probability(judge_built, QUERY, image) for image in images]
    assert judge.judge(QUERY, images) == pytest.approx(expected, rel=1e-4, abs=1e-4)
    assert expected[0] != pytest.approx(expected[1], abs=1e-3)


def test_what_is_no_adapter_is_refused(judge_built: BuiltJudge) -> None:
    with pytest.raises(BackboneError, match="holds no adapter_config"):
        load_mono_qwen(str(judge_built.base), device="cpu")
