"""A plan's figures: bytes are the layout's, times those of the results or in proportion to them."""

import json
from pathlib import Path

import pytest

from ridgerank.backbones.model_source import SHORT_NAMES
from ridgerank.backbones.presets import PRESETS
from ridgerank.errors import BackboneError
from ridgerank.store.page_bytes import count_page_bytes
from ridgerank.store.sizing import (
    CPU,
    MODELS,
    SECONDS_MEASURED,
    PlannedFigure,
    find_shape,
    plan_corpus,
)
from ridgerank.store.storage_setting import StorageSetting
from tests.cli.commands import invoke

RESULTS = Path(__file__).parents[2] / "results"


def figures(pages: int, *words: str) -> dict[str, PlannedFigure]:
    return {figure.name: figure for figure in plan_corpus(pages, *words)}  # type: ignore[arg-type]


def test_bytes_are_those_of_the_measured_arithmetic() -> None:
    known = json.loads((RESULTS / "scale.json").read_text())["small_pages"]
    for preset, setting in (
        ("paper", "stride 1/3, 8 bits, layer 21 (the paper's)"),
        ("small", "value-norm 1/5, 3/2 bits, layer 21"),
    ):
        planned = figures(10, "Qwen/Qwen2.5-VL-7B-Instruct", "a100", preset)
        assert round(planned["per page"].value, 2) == known[setting]["Qwen2.5-VL-7B"]
        assert planned["all pages"].value == pytest.approx(planned["per page"].value / 100)


def test_planned_bytes_are_those_of_a_store_of_that_size() -> None:
    """Stores written by the real tokenizer and shapes, random weights: results/full_size.json."""
    measured = json.loads((RESULTS / "full_size.json").read_text())
    for name, store in (("qwen2.5-vl-3b", measured), ("qwen2.5-vl-7b", measured["seven_billion"])):
        planned = figures(1, name, "a100", "paper")["per page"].value
        assert round(1e6 * planned) == store["rehearsal"]["bytes_per_page"]


def test_every_model_with_a_short_name_can_be_planned_for_by_either_name() -> None:
    for short, repository in SHORT_NAMES.items():
        assert find_shape(short) is find_shape(repository) is MODELS[short]


@pytest.mark.parametrize("name", MODELS)
def test_bytes_in_int8_are_layers_heads_channels_and_positions_and_at_most_three_percent_more(
    name: str,
) -> None:
    shape = MODELS[name]
    setting = StorageSetting.from_preset("paper", layers=shape.layers, reads_text=shape.reads_text)
    positions = setting.keep.count(shape.page_positions) + shape.before_page + shape.after_page
    codes = 2 * setting.exit_layer * shape.kv_heads * shape.head_dim * positions
    assert codes < count_page_bytes(shape, setting) < 1.05 * codes
    if not shape.reads_text and shape.head_dim == 128:
        assert count_page_bytes(shape, setting) < 1.03 * codes


def test_presets_read_as_many_positions_as_their_budget_has() -> None:
    for preset in PRESETS.values():
        assert MODELS[preset.name].page_positions == preset.max_pixels // 28**2


def test_measured_seconds_are_those_of_the_results() -> None:
    text = SECONDS_MEASURED[True]
    first_hour = json.loads((RESULTS / "first_hour.json").read_text())
    assert text.page == first_hour["index_cpu_seconds_per_page"]
    latency = json.loads((RESULTS / "real_documents_second_smollm2.json").read_text())["latency"]
    assert text.request == round(latency["processor_seconds"]["stride 1/3, mean"], 2)
    a100 = json.loads((RESULTS / "scale.json").read_text())["constants"]
    images = SECONDS_MEASURED[False]
    assert (images.page, images.request) == (
        a100["page_seconds_a100"],
        a100["query_seconds_a100"]["Qwen2.5-VL-7B"],
    )


def test_a_figure_says_whether_it_was_measured() -> None:
    planned = figures(3600, "smollm2-135m", CPU)
    assert planned["indexing"].origin == "measured"
    assert planned["indexing"].value == pytest.approx(SECONDS_MEASURED[True].page)
    assert figures(1, "smollm2-135m", "l4")["indexing"].origin == "arithmetic"
    assert figures(1, "qwen2.5-vl-7b", "l4")["indexing"].origin == "arithmetic"
    assert "not here" in figures(1, "qwen2.5-vl-7b", "a100")["indexing"].basis


def test_a_slower_device_and_a_larger_model_take_longer() -> None:
    hours = [figures(1, "qwen2.5-vl-7b", device)["indexing"].value for device in ("a100", "a10", "l4", CPU)]
    assert hours == sorted(hours)
    names = ("smollm2-135m", "smollm2-360m", "qwen2.5-0.5b")
    assert sorted(names, key=lambda name: figures(1, name, CPU)["indexing"].value) == list(names)


def test_unknown_names_are_refused_with_the_known_ones() -> None:
    with pytest.raises(BackboneError, match=r"no plan for 'gpt'; known: qwen2\.5-vl-7b"):
        plan_corpus(1, "gpt", CPU)
    with pytest.raises(BackboneError, match="known: a100, a10, l4, cpu"):
        plan_corpus(1, "qwen2.5-vl-7b", "abacus")


def test_the_command_prints_a_table_and_json() -> None:
    words = ("plan", "--pages", 5000, "--backbone", "smollm2-135m", "--gpu", "cpu")
    table = invoke(*words).stdout
    assert "arithmetic" in table
    assert "e+" not in table, "a number with an exponent"
    rows = json.loads(invoke(*words, "--json").stdout)
    assert {row["origin"] for row in rows} == {"measured", "arithmetic"}
