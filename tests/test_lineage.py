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
    keep="stride 1/3",
    quantization="int8 key-channel value-token",
)


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


def test_targets_depend_on_the_model_and_not_on_how_pages_are_stored() -> None:
    digest = LINEAGE.teacher_fingerprint()
    assert replace(LINEAGE, exit_layer=2, keep="stride 1/2").teacher_fingerprint() == digest
    assert replace(LINEAGE, max_pixels=1000).teacher_fingerprint() != digest
    assert replace(LINEAGE, weights="w1").teacher_fingerprint() != digest


def test_a_fingerprint_depends_on_every_value_and_on_no_order() -> None:
    assert fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1})
    assert fingerprint({"a": 1, "b": 2}) != fingerprint({"a": 1, "b": 3})
    assert len(fingerprint({})) == 32
