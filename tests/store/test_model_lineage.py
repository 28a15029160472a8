"""What a lineage says of a model, and how a model is loaded again as it says."""

from dataclasses import asdict, replace

import pytest

from ridgerank.backbones.base import Backbone
from ridgerank.errors import LineageMismatch
from ridgerank.lineage import Lineage, fingerprint
from ridgerank.store.model_lineage import lineage_of, reading_of, require_same_origin
from ridgerank.store.pruning import Keep
from tests.store.pages import LINEAGE


@pytest.fixture
def lineage(small_backbone: Backbone) -> Lineage:
    return lineage_of(small_backbone, exit_layer=4, join_layer=0, keep=Keep())


def test_a_store_whose_pages_hold_the_whole_instruction_is_refused(
    small_backbone: Backbone, lineage: Lineage
) -> None:
    """Before queries had a likelihood, the instruction's last token was stored with the page."""
    prompt = asdict(small_backbone.prompt)
    del prompt["name"]
    prompt["before_image"], prompt["after_image"] = prompt.pop("before_page"), prompt.pop("after_page")
    before = fingerprint({**prompt, "answer_ids": small_backbone.tokens.answers})
    require_same_origin(lineage, small_backbone, artifact="the store")
    with pytest.raises(LineageMismatch, match=rf"the store .*prompt: '{before}' there"):
        require_same_origin(replace(lineage, prompt=before), small_backbone, artifact="the store")


def test_the_place_of_the_cut_is_in_the_prompts_fingerprint(small_backbone: Backbone) -> None:
    described = small_backbone.tokens.describe()
    moved = {**described, "instruction_tokens_stored": described["instruction_tokens_stored"] + 1}
    assert small_backbone.fingerprints().prompt == fingerprint(described) != fingerprint(moved)


def test_a_lineage_says_how_pages_were_read(lineage: Lineage) -> None:
    pixels = reading_of(lineage)
    assert pixels == {"max_pixels": 30 * 28 * 28, "page_text": None, "prompt": None}
    of_text = replace(LINEAGE, processor="f00, ends 320 tokens a page", prompt="ba2, qwen3-reranker")
    assert reading_of(of_text) == {"max_pixels": None, "page_text": "ends 320", "prompt": "qwen3-reranker"}
    assert set(reading_of(LINEAGE).values()) == {None}
