"""What a lineage says of a model, and how a model is loaded again as it says."""

from dataclasses import asdict, replace

import pytest

from ridgerank.backbones.base import Backbone
from ridgerank.backbones.model_settings import ModelSettings
from ridgerank.errors import LineageMismatch
from ridgerank.lineage import Lineage, fingerprint
from ridgerank.store.model_lineage import make_lineage, require_same_model
from ridgerank.store.storage_setting import Keep
from tests.store.pages import LINEAGE


@pytest.fixture
def lineage(small_backbone: Backbone) -> Lineage:
    return make_lineage(small_backbone, exit_layer=4, keep=Keep())


def test_a_store_whose_pages_hold_the_whole_instruction_is_refused(
    small_backbone: Backbone, lineage: Lineage
) -> None:
    """Before queries had a likelihood, the instruction's last token was stored with the page."""
    prompt = asdict(small_backbone.prompt)
    del prompt["name"]
    prompt["before_image"], prompt["after_image"] = prompt.pop("before_page"), prompt.pop("after_page")
    before = fingerprint({**prompt, "answer_ids": small_backbone.tokens.answers})
    require_same_model(lineage, small_backbone, artifact="the store")
    with pytest.raises(LineageMismatch, match=r"the store .*prompt: another prompt"):
        require_same_model(replace(lineage, prompt=before), small_backbone, artifact="the store")


def test_the_place_of_the_cut_is_in_the_prompts_fingerprint(small_backbone: Backbone) -> None:
    described = small_backbone.tokens.describe()
    moved = {**described, "instruction_tokens_stored": described["instruction_tokens_stored"] + 1}
    assert small_backbone.fingerprints().prompt == fingerprint(described) != fingerprint(moved)


def test_a_lineage_says_how_pages_were_read(small_backbone: Backbone, lineage: Lineage) -> None:
    settings = ModelSettings.from_lineage(lineage)
    assert settings == ModelSettings(small_backbone.name, max_pixels=30 * 28 * 28)
    of_text = replace(LINEAGE, page_text="head 320", prompt_name="qwen3-reranker")
    settings = ModelSettings.from_lineage(of_text, name="another", device="cpu", dtype="float32")
    assert settings == ModelSettings(
        "another", "cpu", "float32", page_text="head 320", prompt="qwen3-reranker"
    )
    assert ModelSettings.from_lineage(LINEAGE) == ModelSettings("tiny")
