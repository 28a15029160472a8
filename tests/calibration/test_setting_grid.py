"""The settings `tune` tries by default: few, by what the model reads, and small enough to help."""

import pytest

from ridgerank.calibration.setting_grid import default_settings
from ridgerank.store.page_bytes import count_page_bytes
from ridgerank.store.sizing import MODELS
from ridgerank.store.storage_setting import STORAGE_PRESETS, StorageSetting


@pytest.mark.parametrize("reads_text", [False, True])
def test_the_default_grid_is_small_and_starts_with_the_current_setting(reads_text: bool) -> None:
    for layers in (1, 5, 30):
        current = StorageSetting.from_preset("paper", layers=layers, reads_text=reads_text)
        settings = default_settings(current, reads_text=reads_text)
        assert settings[0] == current
        assert 8 <= len(settings) == len(set(settings)) <= 20
    assert {setting.exit_layer for setting in settings} == {21, 16, 12}


@pytest.mark.parametrize("reads_text", [False, True])
def test_every_preset_is_tried_on_a_store_of_the_other(reads_text: bool) -> None:
    paper, small = (
        StorageSetting.from_preset(preset, layers=30, reads_text=reads_text) for preset in ("paper", "small")
    )
    assert small in default_settings(paper, reads_text=reads_text)
    pairs = {(each.keep, each.numbers) for each in default_settings(small, reads_text=reads_text)}
    assert (paper.keep, paper.numbers) in pairs


@pytest.mark.parametrize(
    ("name", "megabytes"),
    [("qwen2.5-vl-7b", 1.0), ("qwen2-vl-2b", 0.5), ("glm-4.1v-9b", 0.5), ("qwen3-vl-8b", 2.0)],
)
def test_a_default_store_of_a_large_model_is_offered_pages_of_half_its_bytes(
    name: str, megabytes: float
) -> None:
    shape = MODELS[name]
    for preset in STORAGE_PRESETS:
        current = StorageSetting.from_preset(preset, layers=shape.layers, reads_text=False)
        sizes = [count_page_bytes(shape, setting) for setting in default_settings(current)]
        assert sum(size <= 1e6 * megabytes for size in sizes) >= 2
        assert sum(size < sizes[0] for size in sizes) >= 9
