"""A page stored in several ways is what a store of each setting holds, and rules compute what they need."""

import numpy as np
import pytest
import torch
from PIL import Image

from ridgerank.backbones.base import Backbone
from ridgerank.backbones.prefix import Prefix
from ridgerank.records import Page
from ridgerank.store import codec as compress_module
from ridgerank.store.codec import SettingCompressor, compress, encode_shared
from ridgerank.store.layout import pack
from ridgerank.store.storage_setting import Keep, NumberFormat, StorageSetting


def draw_page() -> Page:
    pixels = np.random.default_rng(0).integers(0, 256, (140, 112, 3), dtype=np.uint8)
    return Page("0" * 64, "page#1", Image.fromarray(pixels), "")


@pytest.mark.parametrize("bits", ["8", "4 group 32", "4/2 group 16"])
@pytest.mark.parametrize("keep", ["stride 1/3", "value-norm 1/2"])
def test_a_page_encoded_deeper_is_stored_as_if_encoded_for_its_setting(
    small_backbone: Backbone, keep: str, bits: str
) -> None:
    page, numbers = draw_page(), NumberFormat.parse(bits)
    settings = [StorageSetting(Keep.parse(keep), numbers, exit_layer) for exit_layer in (2, 4)]
    compressor = SettingCompressor(small_backbone, settings)
    [deep] = small_backbone.encode([page.image], exit_layer=4)
    for setting in settings:
        [prefix] = small_backbone.encode([page.image], exit_layer=setting.exit_layer)
        shared = encode_shared(small_backbone, numbers, exit_layer=setting.exit_layer)
        expected = compress(prefix, setting.keep, numbers, shared)
        stored = compressor.compress(deep, setting)
        np.testing.assert_array_equal(pack(stored), pack(expected))
        assert (stored.shared is None) == (shared is None)
        if stored.shared is not None and shared is not None:
            np.testing.assert_array_equal(stored.shared.keys, shared.keys)


def test_a_setting_reads_as_people_write_it() -> None:
    setting = StorageSetting(Keep.parse("value-norm 1/6"), NumberFormat.parse("4/2 group 32"), 12)
    assert str(setting) == "value-norm 1/6, 4/2 group 32 bits, exit 12"


def test_value_vectors_are_measured_only_for_rules_that_choose_by_them(
    small_backbone: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = draw_page()
    [prefix] = small_backbone.encode([page.image], exit_layer=2)

    def refuse(_: torch.Tensor) -> None:
        raise AssertionError("norms were computed")

    monkeypatch.setattr(compress_module, "average_norms", refuse)
    compress(prefix, Keep.parse("stride 1/3"))
    with pytest.raises(AssertionError, match="norms were computed"):
        compress(prefix, Keep.parse("value-norm 1/3"))


@pytest.mark.parametrize("rule", ["stride", "value-norm"])
def test_a_page_without_visual_positions_keeps_all_others(rule: str) -> None:
    random = torch.Generator().manual_seed(0)
    keys, values = (torch.randn(2, 1, 5, 8, generator=random) for _ in range(2))
    prefix = Prefix(keys, values, torch.zeros(5, dtype=torch.bool), (0, 0), 5)
    packed = compress(prefix, Keep.parse(f"{rule} 1/3"))
    assert packed.positions.tolist() == [0, 1, 2, 3, 4]
