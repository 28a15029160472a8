"""Published configurations, tokenizers and processor settings, where they lie beside the project.

`RIDGERANK_TOKENIZERS` names their folder; without it, `../shared/tokenizers` is looked at.
"""

import os
from pathlib import Path

import pytest
from tokenizers import Tokenizer
from transformers import AutoTokenizer

from ridgerank.backbones.glm_vl import Glm41V
from ridgerank.backbones.idefics import SmolVLM, image_text
from ridgerank.backbones.identity import require_control_tokens
from ridgerank.backbones.load import FAMILIES, read_config, unread_settings
from ridgerank.backbones.model_settings import PRESETS
from ridgerank.backbones.prompt import Prompt, PromptTokens
from ridgerank.backbones.qwen_vl import Qwen2VL, Qwen3VL, Qwen25VL
from ridgerank.backbones.text import text_prompt
from ridgerank.store.page_bytes import MODELS

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
QUERIES = (
    "revenue in 2023?",
    "12 % of 3,5",
    "¿Cuánto?",
    "北京的收入是多少",
    "ما هو الإيراد",
    "राजस्व क्या है",
    "รายได้เท่าไร",
    "🙂 emoji first",
    "«quoted»",
    "-- dashes",
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
    require_control_tokens(name, prompt, backend)
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
def test_published_answers_are_the_tokens_known() -> None:
    assert PromptTokens(Qwen25VL.prompt, tokenizer_of("qwen2.5-vl")).answers == (9693, 2152)
    assert PromptTokens(Glm41V.prompt, tokenizer_of("glm-4.1v-9b-thinking")).answers == (9689, 2152)


@needs_files
@pytest.mark.parametrize("name", PROMPTS)
def test_nothing_of_a_published_configuration_is_lost(name: str) -> None:
    config = read_config(str(FOLDER / name))
    assert config.model_type in FAMILIES
    assert unread_settings(config.get_text_config().to_dict(), config) == []


@needs_files
@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("qwen2.5-vl", "qwen2.5-vl-3b"),
        ("qwen2-vl", "qwen2-vl-2b"),
        ("qwen3-vl", "qwen3-vl-4b"),
        ("glm-4.1v-9b-thinking", "glm-4.1v-9b"),
        ("smolvlm-256m-instruct", "smolvlm-256m"),
    ],
)
def test_bytes_are_planned_with_the_published_shape(folder: str, name: str) -> None:
    config = read_config(str(FOLDER / folder)).get_text_config()
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    shape = MODELS[name]
    published = (config.num_hidden_layers, config.num_key_value_heads, head_dim)
    assert (shape.layers, shape.kv_heads, shape.head_dim) == published


@needs_files
@pytest.mark.parametrize(
    ("folder", "prompt", "name"),
    [
        ("qwen2.5-vl", Qwen25VL.prompt, "qwen2.5-vl-7b"),
        ("qwen2-vl", Qwen2VL.prompt, "qwen2-vl-2b"),
        ("qwen3-vl", Qwen3VL.prompt, "qwen3-vl-8b"),
        ("glm-4.1v-9b-thinking", Glm41V.prompt, "glm-4.1v-9b"),
        *(("qwen2-vl", preset.prompt, preset.name) for preset in PRESETS.values()),
    ],
)
def test_bytes_are_planned_with_the_positions_of_the_prompt(folder: str, prompt: Prompt, name: str) -> None:
    tokens, shape = PromptTokens(prompt, tokenizer_of(folder)), MODELS[name]
    assert shape.before_page == tokens.count_before_page()
    assert shape.before_page + shape.after_page == len(tokens.image_page(""))


@needs_files
@pytest.mark.parametrize(
    ("folder", "name"), [("qwen3", "qwen2.5-0.5b"), ("smolvlm-256m-instruct", "smollm2-135m")]
)
def test_bytes_of_text_are_planned_with_the_positions_of_the_prompt(folder: str, name: str) -> None:
    """The tokenizers' words are those of the text models of the same maker."""
    before, after = PromptTokens(text_prompt("chatml"), tokenizer_of(folder)).around_text()
    assert (MODELS[name].before_page, MODELS[name].after_page) == (len(before), len(after))


@needs_files
def test_bytes_of_tiled_pages_are_planned_with_the_marks_of_the_tiles() -> None:
    backend, shape = tokenizer_of("smolvlm-256m-instruct"), MODELS["smolvlm-256m"]
    tokens = PromptTokens(SmolVLM.prompt, backend)
    page = tokens.image_page(image_text(4, 4, 64))
    assert sum(token == backend.token_to_id("<image>") for token in page) == shape.page_positions
    assert len(page) == shape.page_positions + shape.before_page + shape.after_page
    assert tokens.count_before_page() == shape.before_page


@needs_files
def test_the_flat_configuration_of_glm_is_repaired() -> None:
    rotary = read_config(str(FOLDER / "glm-4.1v-9b-thinking")).get_text_config().rope_parameters
    assert (rotary["partial_rotary_factor"], rotary["mrope_section"]) == (0.5, [8, 12, 12])


@needs_files
@pytest.mark.parametrize(("name", "count"), [("qwen2-vl", 192), ("qwen2.5-vl", 192), ("qwen3-vl", 140)])
def test_a_page_has_the_visual_positions_known(name: str, count: int) -> None:
    from PIL import Image

    processor = Qwen25VL.image_processor_class.from_pretrained(FOLDER / name)
    grid = processor(images=[Image.new("RGB", (448, 336))], return_tensors="pt")["image_grid_thw"]
    assert int(grid.prod()) // processor.merge_size**2 == count
