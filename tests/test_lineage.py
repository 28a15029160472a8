import json
from dataclasses import replace

import pytest

from ridgerank.errors import ArtifactError, LineageMismatch
from ridgerank.lineage import Lineage, fingerprint

LINEAGE = Lineage(
    backbone="Qwen/Qwen2.5-VL-7B-Instruct",
    family="qwen2_5_vl",
    weights="w0",
    transformers="5.22.2",
    processor="p0",
    prompt="q0",
    exit_layer=21,
    join_layer=0,
    keep="stride 1/3",
    quantization="int8 key-channel value-token",
)

OF_IMAGES = (
    '{"backbone": "mini-qwen", "exit_layer": 4, "family": "qwen2_5_vl", "join_layer": 0, '
    '"keep": "stride 1/3", '
    '"processor": "46969598ece8f54a8500c1203597f85f, 150528 pixels a page", '
    '"prompt": "e7628c39e91c56d8b3fc90449f5f9317", '
    '"quantization": "int8, bfloat16 scale per key channel and value position", '
    '"transformers": "5.22.2", "weights": "396c084919eda1f2a2076aefba989df7"}'
)
"""As lineages were written before settings were fields; this one is of the first shipped miniature."""
OF_TEXT = (
    '{"backbone": "/models/text", "exit_layer": 4, "family": "qwen2", "join_layer": 0, '
    '"keep": "informative 1", "processor": "8262f872f3bd5c4652879b2e7f296606, ends 40 tokens a page", '
    '"prompt": "1095795071670efdacd265607449291f, plain", '
    '"quantization": "int8, bfloat16 scale per key channel and value position", '
    '"transformers": "5.22.2", "weights": "ba38f4140031671b4489d779b8adc6f2"}'
)
"""The same of a model that reads text."""


def test_a_lineage_survives_json() -> None:
    assert Lineage.from_json(LINEAGE.to_json()) == LINEAGE


def test_another_lineage_is_refused_with_both_values_shown() -> None:
    with pytest.raises(LineageMismatch, match="exit_layer: 21 there, 14 here") as caught:
        LINEAGE.require(replace(LINEAGE, exit_layer=14), artifact="readout r")
    assert "weights" not in str(caught.value)


def test_the_same_lineage_is_accepted_from_wherever_the_model_was_loaded() -> None:
    LINEAGE.require(replace(LINEAGE, backbone="/models/qwen"), artifact="readout r")


def test_fields_of_another_version_are_named() -> None:
    fields = json.loads(LINEAGE.to_json())
    del fields["prompt"]
    with pytest.raises(ArtifactError, match=r"wanted .*'prompt'"):
        Lineage.from_json(json.dumps(fields))


def test_settings_written_as_words_are_read_as_fields() -> None:
    of_images, of_text = Lineage.from_json(OF_IMAGES), Lineage.from_json(OF_TEXT)
    assert (of_images.processor, of_images.prompt) == (
        "46969598ece8f54a8500c1203597f85f",
        "e7628c39e91c56d8b3fc90449f5f9317",
    )
    assert (of_images.max_pixels, of_images.page_text, of_images.prompt_name) == (150528, None, None)
    assert (of_text.processor, of_text.prompt) == (
        "8262f872f3bd5c4652879b2e7f296606",
        "1095795071670efdacd265607449291f",
    )
    assert (of_text.max_pixels, of_text.page_text, of_text.prompt_name) == (None, "ends 40", "plain")
    for lineage in (of_images, of_text):
        Lineage.from_json(lineage.to_json()).require(lineage, artifact="the store")
    with pytest.raises(
        LineageMismatch, match="max_pixels: 150528 there, 1000 here; prompt_name: None there, 'plain'"
    ):
        of_images.require(replace(of_images, max_pixels=1000, prompt_name="plain"), artifact="the store")


def test_targets_kept_before_settings_were_fields_are_still_of_the_same_teacher() -> None:
    """The digests are those written into `margins.jsonl` then."""
    assert Lineage.from_json(OF_IMAGES).teacher_fingerprint() == "b72f767139880edb65ef8de46b75d07d"
    assert Lineage.from_json(OF_TEXT).teacher_fingerprint() == "8079dc7488656e42adffe37066817d7f"
    lineage = replace(Lineage.from_json(OF_TEXT), exit_layer=2, keep="stride 1/2")
    assert lineage.teacher_fingerprint() == "8079dc7488656e42adffe37066817d7f"


def test_a_lineage_of_before_images_were_resized_once_is_readable_and_says_so() -> None:
    older, today = Lineage.from_json(OF_IMAGES), replace(Lineage.from_json(OF_IMAGES), image_resize="once")
    assert older.image_resize is None
    older.require(today, artifact="the store")
    today.require(older, artifact="the calibration")
    assert Lineage.from_json(today.to_json()) == today
    with pytest.raises(LineageMismatch, match="image_resize: 'once' there, 'never' here"):
        today.require(replace(today, image_resize="never"), artifact="the store")
    # What was taught by other pixels is not taken for the same.
    assert older.teacher_fingerprint() != today.teacher_fingerprint()


def test_a_fingerprint_depends_on_every_value_and_on_no_order() -> None:
    assert fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1})
    assert fingerprint({"a": 1, "b": 2}) != fingerprint({"a": 1, "b": 3})
    assert len(fingerprint({})) == 32
