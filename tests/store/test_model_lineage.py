"""What a lineage says of a model, and how a model is loaded again as it says."""

import hashlib
import json
from dataclasses import asdict, replace
from pathlib import Path

import lance
import pytest

from ridgerank.backbones.base import Backbone
from ridgerank.backbones.model_settings import ModelSettings
from ridgerank.calibration.target_cache import TargetCache
from ridgerank.errors import LineageMismatch
from ridgerank.lineage import Lineage, fingerprint
from ridgerank.store import layout
from ridgerank.store.model_lineage import make_lineage, require_same_model
from ridgerank.store.page_store import PageStore
from ridgerank.store.pruning import Keep
from ridgerank.store.store_writer import StoreWriter
from tests.store.pages import LINEAGE, row
from tests.test_lineage import OF_IMAGES


@pytest.fixture
def lineage(small_backbone: Backbone) -> Lineage:
    return make_lineage(small_backbone, exit_layer=4, join_layer=0, keep=Keep())


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
    of_text = replace(LINEAGE, page_text="ends 320", prompt_name="qwen3-reranker")
    settings = ModelSettings.from_lineage(of_text, name="another", device="cpu", dtype="float32")
    assert settings == ModelSettings(
        "another", "cpu", "float32", page_text="ends 320", prompt="qwen3-reranker"
    )
    assert ModelSettings.from_lineage(LINEAGE) == ModelSettings("tiny")


def test_a_lineage_written_before_settings_were_fields_is_that_of_the_same_model() -> None:
    before = Lineage.from_json(OF_IMAGES)
    settings = ModelSettings.from_lineage(before, device="cpu")
    assert settings == ModelSettings("mini-qwen", "cpu", max_pixels=150528)
    backbone = settings.load()
    today = make_lineage(backbone, exit_layer=4, join_layer=0, keep=Keep())
    # The weights of then are not those of the package today, and images are resized once.
    same_model = replace(before, transformers=today.transformers, weights=today.weights)
    require_same_model(same_model, backbone, artifact="the store")
    with pytest.raises(LineageMismatch, match="'mini-qwen' with other weights"):
        require_same_model(replace(before, transformers=today.transformers), backbone, artifact="the store")
    assert replace(same_model, image_resize="once") == today == Lineage.from_json(today.to_json())


def test_a_store_written_before_settings_were_fields_opens(tmp_path: Path) -> None:
    lineage, uri = Lineage.from_json(OF_IMAGES), str(tmp_path / "store")
    with StoreWriter(uri, lineage):
        pass
    dataset = lance.dataset(uri)
    dataset.update_schema_metadata({layout.LINEAGE_KEY: OF_IMAGES})
    with PageStore.open(uri, lineage=lineage) as store:
        assert store.lineage == lineage
    with StoreWriter(uri, lineage) as writer:
        writer.append([row(1)])
    assert lance.dataset(uri).schema.metadata[layout.LINEAGE_KEY.encode()] == OF_IMAGES.encode()


def test_targets_kept_before_settings_were_fields_are_not_taken_again(tmp_path: Path) -> None:
    """The first line is as it was written then; a file of another teacher would be begun anew."""
    query = hashlib.blake2b(b"cats?", digest_size=16).hexdigest()
    lines = [{"teacher": "b72f767139880edb65ef8de46b75d07d"}, {"page_id": "page", "margins": {query: 0.25}}]
    (tmp_path / "margins.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    cache = TargetCache(tmp_path, Lineage.from_json(OF_IMAGES))
    assert (len(cache), cache.target("margin", "cats?", "page")) == (1, 0.25)
