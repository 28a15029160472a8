"""Models cut down in size only: published configuration, tokenizer, processor settings and chat template.

Their margins equal a plain forward of transformers over what `apply_chat_template` writes.
"""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from transformers import AutoTokenizer, PreTrainedModel, PreTrainedTokenizerFast
from transformers.models.smolvlm.processing_smolvlm import get_image_prompt_string

from ridgerank.backbones.base import Backbone, full_margins
from ridgerank.backbones.load import FAMILIES, load_backbone, read_config
from ridgerank.backbones.vision import VisualBackbone
from tests.backbones.small_models import shaken
from tests.backbones.test_real_files import FOLDER, needs_files

pytestmark = pytest.mark.slow
QUERY = "What was the revenue in 2023, 收入?"
DECODER = {
    "hidden_size": 256,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
}
"""Heads stay 128 wide, as their rotary sections need it."""
SMALL_DECODER = DECODER | {"hidden_size": 128, "head_dim": 64}
VISION: dict[str, dict[str, Any]] = {
    "qwen2.5-vl": {"hidden_size": 32, "intermediate_size": 48, "out_hidden_size": 256}
    | {"fullatt_block_indexes": [1]},
    "qwen2-vl": {"embed_dim": 32, "hidden_size": 256, "mlp_ratio": 2},
    "qwen3-vl": {"hidden_size": 32, "intermediate_size": 48, "out_hidden_size": 256}
    | {"deepstack_visual_indexes": [0, 1]},
    "glm-4.1v-9b-thinking": {"hidden_size": 32, "intermediate_size": 48, "out_hidden_size": 256},
    "smolvlm-256m-instruct": {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1}
    | {"num_attention_heads": 2},
}
AFTER_TEMPLATE = {"glm-4.1v-9b-thinking": "<think></think><answer>"}
"""What the model is taken to have said already."""
MULTIPLE = {"qwen3-vl": 32}
SIZES = [(448, 336), (280, 392), (140, 616)]


@dataclass(frozen=True, slots=True)
class Published:
    name: str
    folder: Path
    family: type[VisualBackbone]
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerFast


@pytest.fixture(scope="module", params=VISION)
def published(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Published:
    """A folder as published, fewer and narrower layers apart; weights are random."""
    name: str = request.param
    folder = tmp_path_factory.mktemp(name)
    for file in (FOLDER / name).iterdir():
        shutil.copyfile(file, folder / file.name)
    settings = json.loads((folder / "config.json").read_text())
    settings.pop("quantization_config", None)  # the file at hand is of a quantized repost
    decoder = settings.get("text_config", settings)
    decoder.update(SMALL_DECODER if name.startswith("smolvlm") else DECODER)
    depth = {} if name.startswith("smolvlm") else {"depth": 2, "num_heads": 2}
    settings["vision_config"].update(depth | VISION[name])
    (folder / "config.json").write_text(json.dumps(settings))
    config = read_config(str(folder))
    family = FAMILIES[config.model_type]
    torch.manual_seed(2)
    model = family.model_class(config).float().eval()
    shaken(model)
    save_file(
        {key: tensor.detach().contiguous() for key, tensor in model.named_parameters()},
        folder / "model.safetensors",
        metadata={"format": "pt"},
    )
    return Published(name, folder, family, model, AutoTokenizer.from_pretrained(folder))


@pytest.fixture(scope="module")
def backbone(published: Published) -> Backbone:
    return load_backbone(published.folder, device="cpu", dtype=torch.float32)


def draw_page(size: tuple[int, int]) -> Image.Image:
    width, height = size
    noise = np.random.default_rng(width).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(noise)


def read_template(folder: Path) -> str:
    if (plain := folder / "chat_template.jinja").exists():
        return plain.read_text()
    template: str = json.loads((folder / "chat_template.json").read_text())["chat_template"]
    return template


def template_inputs(published: Published, image: Image.Image, instruction: str) -> dict[str, Any]:
    """What the processor of transformers would hand to the model: template, image tokens, pixels."""
    content = [{"type": "image"}, {"type": "text", "text": instruction}]
    text: str = published.tokenizer.apply_chat_template(
        [{"role": "user", "content": content}],
        chat_template=read_template(published.folder),
        tokenize=False,
        add_generation_prompt=True,
    )
    text += AFTER_TEMPLATE.get(published.name, "")
    processor = published.family.image_processor_class.from_pretrained(published.folder)
    if published.name.startswith("smolvlm"):
        batch = processor(images=[[image]], return_row_col_info=True, return_tensors="pt")
        marks = "<fake_token_around_image>", "<image>", "<global-img>"
        rows, columns = batch.pop("rows")[0][0], batch.pop("cols")[0][0]
        token, page = "<image>", get_image_prompt_string(rows, columns, 64, *marks)
    else:
        batch = processor(images=[image], return_tensors="pt")
        token = "<|image|>" if published.name.startswith("glm") else "<|image_pad|>"
        page = token * (int(batch["image_grid_thw"].prod()) // processor.merge_size**2)
    assert text.count(token) == 1
    ids = published.tokenizer(text.replace(token, page), add_special_tokens=False, return_tensors="pt")
    inputs = {"input_ids": ids["input_ids"], **batch}
    if "image_grid_thw" in batch:
        inputs["mm_token_type_ids"] = (ids["input_ids"] == published.model.config.image_token_id).int()
    return inputs


def plain_margin(published: Published, inputs: dict[str, Any], answers: tuple[str, str]) -> float:
    """One logit minus the other at the last position of one forward."""
    yes, no = (published.tokenizer.encode(word, add_special_tokens=False) for word in answers)
    assert len(yes) == len(no) == 1
    with torch.no_grad():
        logits = published.model(**inputs, use_cache=False, logits_to_keep=1).logits[0, -1]
    return float(logits[yes[0]] - logits[no[0]])


@needs_files
def test_margins_are_those_of_a_plain_forward_over_the_published_template(
    published: Published, backbone: Backbone
) -> None:
    sizes = SIZES[:1] if published.name.startswith("smolvlm") else SIZES
    pages = [draw_page(size) for size in sizes]
    prompt = backbone.prompt
    expected = [
        plain_margin(
            published,
            template_inputs(published, page, prompt.instruction + QUERY),
            prompt.answers or ("", ""),
        )
        for page in pages
    ]
    assert full_margins(backbone, QUERY, pages).tolist() == pytest.approx(expected, abs=1e-4)


@needs_files
def test_a_page_has_a_visual_position_per_merged_patch(published: Published, backbone: Backbone) -> None:
    if published.name.startswith("smolvlm"):
        [prefix] = backbone.encode([draw_page((448, 336))], exit_layer=1)
        assert int(prefix.visual.sum()) == (4 * 3 + 1) * 64, "4 x 3 tiles and the page seen whole"
        return
    multiple = MULTIPLE.get(published.name, 28)
    prefixes = backbone.encode([draw_page(size) for size in SIZES], exit_layer=1)
    counts = [round(width / multiple) * round(height / multiple) for width, height in SIZES]
    assert [int(prefix.visual.sum()) for prefix in prefixes] == counts


@needs_files
@pytest.mark.parametrize("published", ["qwen2-vl"], indirect=True)
def test_monoqwen_asks_in_the_published_template_too(published: Published) -> None:
    mono = load_backbone(published.folder, device="cpu", dtype=torch.float32, prompt="monoqwen2-vl")
    page = draw_page(SIZES[1])
    inputs = template_inputs(published, page, mono.prompt.instruction + QUERY)
    expected = plain_margin(published, inputs, ("True", "False"))
    assert full_margins(mono, QUERY, [page]).tolist() == pytest.approx([expected], abs=1e-4)
