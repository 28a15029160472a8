import json
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgerank.errors import ArtifactError, LineageMismatch, StoreError
from ridgerank.lineage import (
    RULES,
    Keep,
    Lineage,
    StorageSetting,
    parse_quality,
)

LINEAGE = Lineage(
    backbone="Qwen/Qwen2.5-VL-7B-Instruct",
    family="qwen2_5_vl",
    weights="w0",
    processor="p0",
    prompt="q0",
    storage=StorageSetting(Keep(), 21),
)


def test_a_lineage_survives_json_whose_fields_stay_as_they_are() -> None:
    assert Lineage.from_json(LINEAGE.to_json()) == LINEAGE
    coded = replace(LINEAGE, storage=StorageSetting(Keep(), 6, 1.5, "b0"), prompt_name="qwen3")
    assert Lineage.from_json(coded.to_json()) == coded
    assert LINEAGE.to_json() == (
        '{"backbone": "Qwen/Qwen2.5-VL-7B-Instruct", "basis": null, "exit_layer": 21, '
        '"family": "qwen2_5_vl", "keep": "stride 1/3", "made_by": {}, "max_pixels": null, '
        '"page_text": null, "processor": "p0", "prompt": "q0", "prompt_name": null, "quality": null, '
        '"weights": "w0"}'
    )


def test_another_lineage_is_refused_with_both_values_shown() -> None:
    with pytest.raises(LineageMismatch, match="exit_layer: 21 there, 14 here") as caught:
        LINEAGE.require(
            replace(LINEAGE, storage=replace(LINEAGE.storage, exit_layer=14)), artifact="readout r"
        )
    assert "weights" not in str(caught.value)


def test_from_where_and_how_a_model_was_loaded_is_recorded_and_does_not_count() -> None:
    made = replace(LINEAGE, made_by={"transformers": "5.22.2", "dtype": "bfloat16", "device": "cuda"})
    assert Lineage.from_json(made.to_json()).made_by == made.made_by
    moved = replace(LINEAGE, backbone="/models/qwen", made_by={"dtype": "float32"})
    made.require(moved, artifact="readout r")


@pytest.mark.parametrize(
    "change",
    [{"keep": "all"}, {"quality": "fine"}, {"exit_layer": "6"}, {"made_by": []}, {"new": 1}],
    ids=str,
)
def test_a_field_that_was_altered_or_is_of_another_version_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ArtifactError, match=r"damaged, or of another version.*make the artifact again"):
        Lineage.from_json(json.dumps(json.loads(LINEAGE.to_json()) | change))


def test_targets_depend_on_the_model_and_not_on_how_pages_are_stored() -> None:
    digest = LINEAGE.teacher_fingerprint()
    other = StorageSetting(Keep.parse("stride 1/2"), 2)
    assert replace(LINEAGE, storage=other).teacher_fingerprint() == digest
    assert replace(LINEAGE, max_pixels=1000).teacher_fingerprint() != digest
    assert replace(LINEAGE, weights="w1").teacher_fingerprint() != digest


@given(
    rule=st.sampled_from(sorted(RULES)),
    fraction=st.fractions(min_value=Fraction(1, 50), max_value=1, max_denominator=50),
)
def test_what_a_rule_prints_is_parsed(rule: str, fraction: Fraction) -> None:
    assert Keep.parse(str(Keep(rule, fraction))) == Keep(rule, fraction)


def test_a_setting_reads_as_people_write_it() -> None:
    setting = StorageSetting(Keep.parse("value-norm 0.25"), 12, parse_quality("1.50"))
    assert str(setting) == "value-norm 1/4, quality 1.5, exit 12"
    assert setting.command_options() == "--keep 'value-norm 1/4' --quality 1.5 --exit-layer 12"


@pytest.mark.parametrize(
    "text", ["stride", "stride 0", "stride 1.5", "stride 1/0", "nonsense 1/3", "1/3", ""]
)
def test_another_spelling_of_kept_positions_is_refused(text: str) -> None:
    with pytest.raises(StoreError):
        Keep.parse(text)


@pytest.mark.parametrize("text", ["", "0", "-1", "1e-308", "nan", "inf", "65", "fine"])
def test_a_quality_that_does_not_exist_is_refused(text: str) -> None:
    with pytest.raises(StoreError, match=r"expected a number from 0\.01 to 64"):
        parse_quality(text)
