"""Published configurations, tokenizers and processor settings, where they lie beside the project.

`RIDGERANK_TOKENIZERS` names their folder; without it, `../shared/tokenizers` is looked at.
"""

import json
import os
from pathlib import Path

import pytest
from tokenizers import Tokenizer
from transformers import AutoTokenizer

from ridgerank.backbones.load import FAMILIES, read_config, unread_settings
from ridgerank.backbones.model_settings import PRESETS
from ridgerank.backbones.prompt import Prompt, PromptTokens
from ridgerank.backbones.text import text_prompt
from ridgerank.backbones.vision import (
    Glm41V,
    Qwen2VL,
    Qwen3VL,
    Qwen25VL,
    SmolVLM,
    image_text,
)
from ridgerank.store.layout import MODEL_SHAPES

FOLDER = Path(
    os.environ.get("RIDGERANK_TOKENIZERS", Path(__file__).parents[2] / ".." / "shared" / "tokenizers")
)
needs_files = pytest.mark.skipif(
    not FOLDER.is_dir(), reason="no published tokenizers in RIDGERANK_TOKENIZERS or ../shared: not run"
)
PROMPTS = {
    "qwen2.5-vl": Qwen25VL.prompt,
    "qwen2-vl": Qwen2VL.prompt,
    "qwen3-vl": Qwen3VL.prompt,
    "glm-4.1v-9b-thinking": Glm41V.prompt,
}
SHAPES = {
    "qwen2.5-vl": "qwen2.5-vl-3b",
    "qwen2-vl": "qwen2-vl-2b",
    "qwen3-vl": "qwen3-vl-4b",
    "glm-4.1v-9b-thinking": "glm-4.1v-9b",
}
"""Folders and the models whose configuration they hold."""
QUERIES = (
    "revenue in 2023?",
    "12 % of 3,5",
    "北京的收入是多少",
    "राजस्व क्या है",
    "🙂 emoji first",
    "<|im_end|> typed",
)


def tokenizer_of(name: str) -> Tokenizer:
    backend: Tokenizer = AutoTokenizer.from_pretrained(FOLDER / name).backend_tokenizer
    return backend


@needs_files
@pytest.mark.parametrize(
    ("name", "prompt"), [*PROMPTS.items(), *(("qwen2-vl", preset.prompt) for preset in PRESETS.values())]
)
def test_the_cut_prompt_tokenizes_as_the_whole(name: str, prompt: Prompt) -> None:
    backend = tokenizer_of(name)
    tokens = PromptTokens(prompt, backend)
    for query in QUERIES:
        if "<|" in query:
            tokens.suffix(query)  # plain text: nothing to compare with, and no error
            continue
        text = prompt.after_page + prompt.instruction + query + prompt.after_query
        whole = [*backend.encode(text, add_special_tokens=False).ids, *prompt.closing_tokens]
        suffix = tokens.suffix(query)
        assert whole[-len(suffix) :] == suffix
        assert tokens.image_page("")[-(len(whole) - len(suffix)) :] == whole[: -len(suffix)]


@needs_files
@pytest.mark.parametrize("name", PROMPTS)
def test_nothing_of_a_published_configuration_is_lost(name: str) -> None:
    config = read_config(str(FOLDER / name))
    assert config.model_type in FAMILIES
    assert unread_settings(config.get_text_config().to_dict(), config) == []


@needs_files
@pytest.mark.parametrize(
    ("folder", "prompt", "name"),
    [
        *((folder, PROMPTS[folder], name) for folder, name in SHAPES.items()),
        *(("qwen2-vl", preset.prompt, preset.prompt.name) for preset in PRESETS.values()),
        ("qwen3", text_prompt("chatml"), "qwen2.5-0.5b"),
        ("smolvlm-256m-instruct", text_prompt("chatml"), "smollm2-135m"),
        ("smolvlm-256m-instruct", SmolVLM.prompt, "smolvlm-256m"),
    ],
)
def test_bytes_are_planned_with_the_published_shape_and_prompt(
    folder: str, prompt: Prompt, name: str
) -> None:
    """A tokenizer's words are those of the text models of the same maker."""
    backend, shape = tokenizer_of(folder), MODEL_SHAPES[name]
    tokens = PromptTokens(prompt, backend)
    assert shape.before_page == len(tokens.around_text()[0])
    if shape.reads_text:
        assert shape.after_page == len(tokens.around_text()[1])
        return
    page = tokens.image_page(image_text(4, 4, 64) if name == "smolvlm-256m" else "")
    visual = sum(token == backend.token_to_id("<image>") for token in page)
    assert len(page) - visual == shape.before_page + shape.after_page
    assert visual in (0, shape.page_positions)
    config = read_config(str(FOLDER / folder)).get_text_config()
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    if name in SHAPES.values():
        published = (config.num_hidden_layers, config.num_key_value_heads, head_dim)
        assert (shape.layers, shape.kv_heads, shape.head_dim) == published


@needs_files
def test_the_flat_configuration_of_glm_is_repaired() -> None:
    rotary = read_config(str(FOLDER / "glm-4.1v-9b-thinking")).get_text_config().rope_parameters
    assert (rotary["partial_rotary_factor"], rotary["mrope_section"]) == (0.5, [8, 12, 12])


@needs_files
@pytest.mark.parametrize(
    ("folder", "prompt", "image", "said"),
    [
        ("qwen2.5-vl", Qwen25VL.prompt, "<|image_pad|>", ""),
        ("qwen2-vl", Qwen2VL.prompt, "<|image_pad|>", ""),
        ("qwen2-vl", PRESETS["monoqwen2-vl"].prompt, "<|image_pad|>", ""),
        ("qwen3-vl", Qwen3VL.prompt, "<|image_pad|>", ""),
        ("glm-4.1v-9b-thinking", Glm41V.prompt, "<|image|>", "<think></think><answer>"),
        ("smolvlm-256m-instruct", SmolVLM.prompt, "<image>", ""),
    ],
)
def test_the_prompt_is_the_published_chat_template(
    folder: str, prompt: Prompt, image: str, said: str
) -> None:
    """`said` is what the model is taken to have said already."""
    template_file = FOLDER / folder / "chat_template.jinja"
    if template_file.exists():
        template = template_file.read_text()
    else:
        template = json.loads(template_file.with_suffix(".json").read_text())["chat_template"]
    content = [{"type": "image"}, {"type": "text", "text": prompt.instruction + QUERIES[0]}]
    text = AutoTokenizer.from_pretrained(FOLDER / folder).apply_chat_template(
        [{"role": "user", "content": content}],
        chat_template=template,
        tokenize=False,
        add_generation_prompt=True,
    )
    # A tile of SmolVLM's brings the token that closes it.
    closing = "" if image == "<image>" else prompt.after_page
    page_and_query = image + closing + prompt.instruction + QUERIES[0]
    assert text + said == prompt.before_page + page_and_query + prompt.after_query
