import json
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgerank.errors import ArtifactError, LineageMismatch, StoreError
from ridgerank.lineage import (
    PAPER_NUMBERS,
    RULES,
    VALUE_WIDTHS,
    WIDTHS,
    Keep,
    Lineage,
    NumberFormat,
    StorageSetting,
)

LINEAGE = Lineage(
    backbone="Qwen/Qwen2.5-VL-7B-Instruct",
    family="qwen2_5_vl",
    weights="w0",
    transformers="5.22.2",
    processor="p0",
    prompt="q0",
    storage=StorageSetting(Keep(), PAPER_NUMBERS, 21),
)


def test_a_lineage_survives_json_whose_fields_stay_as_they_are() -> None:
    assert Lineage.from_json(LINEAGE.to_json()) == LINEAGE
    packed = replace(LINEAGE, storage=StorageSetting(Keep(), NumberFormat(4, 2, 32), 6), prompt_name="qwen3")
    assert Lineage.from_json(packed.to_json()) == packed
    assert LINEAGE.to_json() == (
        '{"backbone": "Qwen/Qwen2.5-VL-7B-Instruct", "exit_layer": 21, "family": "qwen2_5_vl", '
        '"keep": "stride 1/3", "key_bits": 8, "max_pixels": null, "number_group": null, "page_text": null, '
        '"processor": "p0", "prompt": "q0", "prompt_name": null, '
        '"quantization": "int8, bfloat16 scale per key channel and value position", '
        '"transformers": "5.22.2", "value_bits": 8, "weights": "w0"}'
    )


def test_another_lineage_is_refused_with_both_values_shown() -> None:
    with pytest.raises(LineageMismatch, match="exit_layer: 21 there, 14 here") as caught:
        LINEAGE.require(
            replace(LINEAGE, storage=replace(LINEAGE.storage, exit_layer=14)), artifact="readout r"
        )
    assert "weights" not in str(caught.value)


def test_the_same_lineage_is_accepted_from_wherever_the_model_was_loaded() -> None:
    LINEAGE.require(replace(LINEAGE, backbone="/models/qwen"), artifact="readout r")


def test_fields_of_another_version_are_named() -> None:
    fields = json.loads(LINEAGE.to_json())
    del fields["prompt"]
    with pytest.raises(ArtifactError, match=r"expected .*'prompt'"):
        Lineage.from_json(json.dumps(fields))


@pytest.mark.parametrize(
    "change", [{"keep": "all"}, {"key_bits": 5}, {"exit_layer": "6"}, {"quantization": "int4"}], ids=str
)
def test_a_value_that_was_altered_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ArtifactError, match="make the artifact again"):
        Lineage.from_json(json.dumps(json.loads(LINEAGE.to_json()) | change))


def test_targets_depend_on_the_model_and_not_on_how_pages_are_stored() -> None:
    digest = LINEAGE.teacher_fingerprint()
    other = StorageSetting(Keep.parse("stride 1/2"), PAPER_NUMBERS, 2)
    assert replace(LINEAGE, storage=other).teacher_fingerprint() == digest
    assert replace(LINEAGE, max_pixels=1000).teacher_fingerprint() != digest
    assert replace(LINEAGE, weights="w1").teacher_fingerprint() != digest


@given(
    rule=st.sampled_from(sorted(RULES)),
    fraction=st.fractions(min_value=Fraction(1, 50), max_value=1, max_denominator=50),
    keys=st.sampled_from(WIDTHS),
    values=st.sampled_from(VALUE_WIDTHS),
    group=st.none() | st.integers(8, 512),
)
def test_what_a_setting_prints_is_parsed(
    rule: str, fraction: Fraction, keys: int, values: int, group: int | None
) -> None:
    keep, numbers = Keep(rule, fraction), NumberFormat(keys, values, group)
    assert (Keep.parse(str(keep)), NumberFormat.parse(str(numbers))) == (keep, numbers)


def test_a_setting_reads_as_people_write_it() -> None:
    setting = StorageSetting(Keep.parse("value-norm 0.25"), NumberFormat.parse("4/2 group 32"), 12)
    assert str(setting) == "value-norm 1/4, 4/2 group 32 bits, exit 12"


@pytest.mark.parametrize(
    "text", ["stride", "stride 0", "stride 1.5", "stride 1/0", "nonsense 1/3", "1/3", ""]
)
def test_another_spelling_of_kept_positions_is_refused(text: str) -> None:
    with pytest.raises(StoreError):
        Keep.parse(text)


def test_eight_bits_are_the_paper_and_nothing_else_is() -> None:
    assert NumberFormat.parse("8") == NumberFormat.parse("8/8") == PAPER_NUMBERS
    assert PAPER_NUMBERS.symmetric
    assert not any(NumberFormat.parse(text).symmetric for text in ("4", "8/4", "4/8", "8 group 32"))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        *((text, "'4 group 32'") for text in ("", "16", "four", "4 32", "4/", "4 group", "4 group x", "-4")),
        ("5", "8, 4, 3, 2"),
        ("1", "keys of 8, 4, 3, 2"),
        ("4/6", "values of 8, 4, 3, 2, 1"),
        ("4 group 2", "8 to 65535"),
    ],
)
def test_bits_that_do_not_exist_are_refused(text: str, reason: str) -> None:
    with pytest.raises(StoreError, match=reason):
        NumberFormat.parse(text)
